// The residency table, seen by the store (TableWriter) and by clients (TableView).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/shm/entry.h"
#include "common/shm/protocol.h"

#include "absl/status/statusor.h"

namespace strata::shm {

// Read access. Cheap to copy; the memory must outlive it. Thread-safe.
class TableView {
 public:
  TableView() = default;
  // Checks every record against the sizes, so that later address arithmetic cannot leave the arena.
  static absl::StatusOr<TableView> Open(std::span<const std::byte> table, uint64_t arena_bytes,
                                        const Fingerprint& fingerprint);

  const TableHeader& header() const { return *header_; }
  uint32_t experts() const { return header_->experts; }
  uint32_t slots() const { return header_->slots; }
  std::span<const LayerRecord> layers() const { return {layers_, header_->layers}; }
  std::span<const ClassRecord> classes() const { return {classes_, header_->classes}; }
  const Atomic<uint64_t>& entry(uint32_t expert) const { return entries_[expert]; }

  // Offset in the arena of part `part` of expert `index` of `layer` when it lies in `slot`.
  static uint64_t PartOffset(const LayerRecord& layer, const ClassRecord& size_class,
                             uint32_t index, uint32_t slot, uint32_t part) {
    return size_class.arena_offset + (slot - size_class.first_slot) * size_class.slot_bytes +
           layer.part_start[part] +
           (layer.file_offset[part] + index * layer.stride[part]) % kBlockAlign;
  }

 private:
  friend class TableWriter;
  const TableHeader* header_ = nullptr;
  const LayerRecord* layers_ = nullptr;
  const ClassRecord* classes_ = nullptr;
  const Atomic<uint64_t>* entries_ = nullptr;
};

// Write access for the store's one data-plane thread.
class TableWriter {
 public:
  TableWriter() = default;
  static uint64_t BytesFor(uint32_t layers, uint32_t classes, uint32_t experts);
  // Fills zeroed memory of BytesFor() bytes with a header, the records and absent entries.
  TableWriter(std::span<std::byte> memory, std::span<const LayerRecord> layers,
              std::span<const ClassRecord> classes, uint64_t arena_bytes,
              const Fingerprint& fingerprint);

  Entry entry(uint32_t expert) const {
    return Entry::Unpack(entries_[expert].load(std::memory_order_relaxed));
  }
  // seq_cst: publishing needs release, and marking as evicting must be ordered before the following
  // look at the pins (see arena_client.h).
  void SetEntry(uint32_t expert, Entry entry) {
    entries_[expert].store(entry.Pack(), std::memory_order_seq_cst);
  }
  void SetStarved(bool starved) {
    header_->starved.store(starved ? 1 : 0, std::memory_order_seq_cst);
  }
  void SetUsableSlots(uint32_t slots) {
    header_->usable_slots.store(slots, std::memory_order_relaxed);
  }
  bool starved() const { return header_->starved.load(std::memory_order_relaxed) != 0; }

 private:
  TableHeader* header_ = nullptr;
  Atomic<uint64_t>* entries_ = nullptr;
};

}  // namespace strata::shm
