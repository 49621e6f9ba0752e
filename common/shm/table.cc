#include "common/shm/table.h"

#include <algorithm>
#include <new>

#include "common/base/checked.h"
#include "common/base/status.h"

namespace strata::shm {
namespace {

struct TableOffsets {
  uint64_t layers, classes, entries, bytes;
};

TableOffsets OffsetsFor(uint32_t layers, uint32_t classes, uint32_t experts) {
  TableOffsets at;
  at.layers = sizeof(TableHeader);
  at.classes = at.layers + sizeof(LayerRecord) * layers;
  at.entries = (at.classes + sizeof(ClassRecord) * classes + 63) / 64 * 64;
  at.bytes = at.entries + uint64_t{8} * experts;
  return at;
}

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed residency table: ", A(what)));
}

absl::Status CheckClass(const ClassRecord& record, const TableHeader& header) {
  const auto bytes = CheckedMul(record.slots, record.slot_bytes);
  const auto end = bytes ? CheckedAdd(record.arena_offset, *bytes) : std::nullopt;
  if (!end || *end > header.arena_bytes) return Malformed("a size class leaves the arena");
  if (uint64_t{record.first_slot} + record.slots > header.slots) {
    return Malformed("a size class has slots beyond the last");
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(const LayerRecord& record, const TableHeader& header,
                        std::span<const ClassRecord> classes) {
  if (record.experts == 0) return absl::OkStatus();
  if (uint64_t{record.first_expert} + record.experts > header.experts) {
    return Malformed("a layer has experts beyond the last");
  }
  if (record.size_class >= classes.size()) return Malformed("a layer names an unknown size class");
  if (record.parts == 0 || record.parts > kMaxParts) return Malformed("a layer's number of parts");
  for (uint32_t p = 0; p < record.parts; ++p) {
    // A part may start up to kBlockAlign - 1 bytes after part_start.
    const auto end = CheckedAdd(record.part_start[p], record.bytes[p]);
    if (!end || *end > classes[record.size_class].slot_bytes) {
      return Malformed("a part leaves its slot");
    }
    if (static_cast<uint32_t>(record.layout[p]) >= quant::kWeightLayouts) {
      return Malformed("a layout of weights that is not known here");
    }
    const auto all = CheckedMul(record.stride[p], record.experts);
    if (!all || !CheckedAdd(record.file_offset[p], *all)) return Malformed("a part's file offset");
    for (uint32_t e = 0; e < record.experts; ++e) {
      if (*end + (record.file_offset[p] + e * record.stride[p]) % kBlockAlign >
          classes[record.size_class].slot_bytes) {
        return Malformed("a part leaves its slot");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TableView> TableView::Open(std::span<const std::byte> table, uint64_t arena_bytes,
                                          const Fingerprint& fingerprint) {
  if (table.size() < sizeof(TableHeader)) return Malformed("shorter than its header");
  const auto* header = reinterpret_cast<const TableHeader*>(table.data());
  if (header->magic != kMagic || header->version != kVersion) return Malformed("magic or version");
  if (header->slots > kMaxSlots || header->classes > kMaxClasses) return Malformed("header");
  const TableOffsets at = OffsetsFor(header->layers, header->classes, header->experts);
  if (table.size() < at.bytes) return Malformed("shorter than its entries");
  if (header->arena_bytes != arena_bytes) return Malformed("arena size differs from the hello's");
  if (header->fingerprint != fingerprint) {
    return absl::FailedPreconditionError("the expert store serves another model than this one");
  }
  TableView view;
  view.header_ = header;
  view.layers_ = reinterpret_cast<const LayerRecord*>(table.data() + at.layers);
  view.classes_ = reinterpret_cast<const ClassRecord*>(table.data() + at.classes);
  view.entries_ = reinterpret_cast<const Atomic<uint64_t>*>(table.data() + at.entries);
  for (const ClassRecord& record : view.classes()) {
    STRATA_RETURN_IF_ERROR(CheckClass(record, *header));
  }
  for (const LayerRecord& record : view.layers()) {
    STRATA_RETURN_IF_ERROR(CheckLayer(record, *header, view.classes()));
  }
  return view;
}

uint64_t TableWriter::BytesFor(uint32_t layers, uint32_t classes, uint32_t experts) {
  return OffsetsFor(layers, classes, experts).bytes;
}

TableWriter::TableWriter(std::span<std::byte> memory, std::span<const LayerRecord> layers,
                         std::span<const ClassRecord> classes, uint64_t arena_bytes,
                         const Fingerprint& fingerprint) {
  header_ = new (memory.data()) TableHeader;
  header_->layers = static_cast<uint32_t>(layers.size());
  header_->classes = static_cast<uint32_t>(classes.size());
  for (const LayerRecord& record : layers) header_->experts += record.experts;
  for (const ClassRecord& record : classes) header_->slots += record.slots;
  header_->usable_slots.store(header_->slots, std::memory_order_relaxed);
  header_->arena_bytes = arena_bytes;
  header_->fingerprint = fingerprint;
  const TableOffsets at = OffsetsFor(header_->layers, header_->classes, header_->experts);
  std::copy(layers.begin(), layers.end(),
            reinterpret_cast<LayerRecord*>(memory.data() + at.layers));
  std::copy(classes.begin(), classes.end(),
            reinterpret_cast<ClassRecord*>(memory.data() + at.classes));
  entries_ = reinterpret_cast<Atomic<uint64_t>*>(memory.data() + at.entries);
  for (uint32_t e = 0; e < header_->experts; ++e) new (&entries_[e]) Atomic<uint64_t>(0);
}

}  // namespace strata::shm
