#include "services/expertstore/arena/slot_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <tuple>

#include "common/base/checked.h"
#include "common/base/status.h"
#include "common/quant/weight_layout.h"
#include "common/shm/table.h"

namespace strata::expertstore {
namespace {

using shm::kBlockAlign;

constexpr uint64_t RoundUp(uint64_t value) {
  return (value + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
}

// Fills the record of one layer; returns the bytes its experts need in a slot.
absl::StatusOr<uint64_t> LayOut(const LayerPlaces& from, shm::LayerRecord* layer) {
  if (from.parts.empty() || from.parts.size() > shm::kMaxParts || from.experts == 0) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", from.layer, " has ", from.experts,
                                                   " experts of ", from.parts.size(), " parts"));
  }
  layer->experts = from.experts;
  layer->parts = static_cast<uint32_t>(from.parts.size());
  uint64_t start = 0;
  for (uint32_t p = 0; p < layer->parts; ++p) {
    const PartPlace& part = from.parts[p];
    const auto all = CheckedMul(part.stride, from.experts);
    if (!all || !CheckedAdd(part.offset, *all) || part.bytes >= 1ull << 40) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", from.layer, ": an expert tensor's extent overflows"));
    }
    layer->file_offset[p] = part.offset;
    layer->stride[p] = part.stride;
    layer->bytes[p] = part.bytes;
    layer->layout[p] = part.layout;
    if (from.contiguous) {  // in the slot as in the file
      const uint64_t in_expert = part.offset - from.parts[0].offset;
      layer->part_start[p] = in_expert / kBlockAlign * kBlockAlign;
      start = RoundUp(in_expert + part.bytes);
      continue;
    }
    layer->part_start[p] = start;
    uint64_t most = 0;
    for (uint64_t e = 0; e < from.experts; ++e) {
      const uint64_t skew = (part.offset + e * part.stride) % kBlockAlign;
      most = std::max(most, RoundUp(skew + part.bytes));
    }
    start += most;
  }
  return start;
}

// Class sizes, ascending, such that no slot is more than `tolerance` too large for its expert.
std::vector<uint64_t> ClassSizes(const std::map<uint64_t, uint64_t>& sizes, double tolerance) {
  std::vector<uint64_t> classes;
  for (auto it = sizes.rbegin(); it != sizes.rend(); ++it) {
    const double limit = static_cast<double>(it->first) * (1 + tolerance);
    if (classes.empty() || static_cast<double>(classes.back()) > limit) {
      classes.push_back(it->first);
    }
  }
  std::reverse(classes.begin(), classes.end());
  return classes;
}

}  // namespace

absl::StatusOr<SlotPlan> PlanSlots(const Places& places, uint64_t bytes, uint32_t min_slots) {
  SlotPlan plan;
  std::vector<uint64_t> need;          // slot bytes by layer number
  std::map<uint64_t, uint64_t> sizes;  // slot bytes -> experts
  for (const LayerPlaces& from : places) {
    if (from.layer < plan.layers.size()) {
      return absl::InvalidArgumentError("the expert geometry's layers do not ascend");
    }
    plan.layers.resize(from.layer + 1);
    need.resize(from.layer + 1);
    shm::LayerRecord& layer = plan.layers.back();
    STRATA_ASSIGN_OR_RETURN(need.back(), LayOut(from, &layer));
    layer.first_expert = plan.experts;
    plan.experts += layer.experts;
    sizes[need.back()] += layer.experts;
  }
  if (plan.experts == 0) return absl::InvalidArgumentError("the model has no experts");

  double tolerance = 1.0 / 32;
  std::vector<uint64_t> class_sizes = ClassSizes(sizes, tolerance);
  while (class_sizes.size() > shm::kMaxClasses) {
    tolerance *= 2;
    class_sizes = ClassSizes(sizes, tolerance);
  }
  std::vector<uint64_t> wanted(class_sizes.size());
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    if (plan.layers[l].experts == 0) continue;
    const auto at = std::lower_bound(class_sizes.begin(), class_sizes.end(), need[l]);
    plan.layers[l].size_class = static_cast<uint32_t>(at - class_sizes.begin());
    wanted[plan.layers[l].size_class] += plan.layers[l].experts;
  }
  uint64_t& least = plan.least_bytes;
  for (size_t c = 0; c < class_sizes.size(); ++c) {
    plan.all_bytes += wanted[c] * class_sizes[c];
    least += std::min<uint64_t>(wanted[c], min_slots) * class_sizes[c];
  }
  if (bytes < least) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the expert arena may take ", bytes, " bytes, but the ", min_slots,
        " experts that a token uses in a layer take ", least,
        "; let expertstore.arena_bytes be at least that (all experts: ", plan.all_bytes, ")"));
  }
  // What is left after the minimum goes to the classes in proportion to what they still want.
  const double left = static_cast<double>(bytes - least);
  const double asked = static_cast<double>(plan.all_bytes - least);
  const double share = left >= asked ? 1.0 : left / asked;
  for (size_t c = 0; c < class_sizes.size(); ++c) {
    const uint64_t minimum = std::min<uint64_t>(wanted[c], min_slots);
    const auto extra = static_cast<uint64_t>(static_cast<double>(wanted[c] - minimum) * share);
    shm::ClassRecord record;
    record.first_slot = plan.slots;
    record.slots = static_cast<uint32_t>(minimum + extra);
    record.slot_bytes = class_sizes[c];
    record.arena_offset = plan.bytes;
    plan.slots += record.slots;
    plan.bytes += record.slots * record.slot_bytes;
    plan.classes.push_back(record);
  }
  if (plan.slots >= shm::kMaxSlots) return absl::InvalidArgumentError("too many expert slots");
  return plan;
}

void InterleaveSlots(const Places& places, SlotPlan* plan) {
  for (const LayerPlaces& from : places) {
    shm::LayerRecord& layer = plan->layers[from.layer];
    for (uint32_t p = 0; p < layer.parts; ++p) {
      const PartPlace& part = from.parts[p];
      const bool rows = part.row_bytes > 0 && part.bytes % part.row_bytes == 0 &&
                        part.bytes / part.row_bytes % quant::kInterleavedRows == 0;
      if (rows && quant::GainsFromRows8(part.type)) layer.layout[p] = quant::WeightLayout::kRows8;
    }
  }
}

ExpertMap::ExpertMap(const ExpertFiles& files, const SlotPlan& plan)
    : layers_(plan.layers),
      classes_(plan.classes),
      sources_(plan.layers.size()),
      copies_(files.copies),
      files_per_copy_(files.files_per_copy),
      checksums_(files.checksums) {
  places_.reserve(plan.experts);
  for (const LayerPlaces& layer : files.places) {
    sources_[layer.layer] = layer;
    for (uint32_t e = 0; e < layer.experts; ++e) {
      places_.push_back({layer.layer, e, layers_[layer.layer].size_class});
    }
  }
  if (files.fallback.empty()) return;
  fallback_.resize(plan.layers.size());
  for (const LayerPlaces& layer : files.fallback) fallback_[layer.layer] = layer;
}

void ExpertMap::Extents(uint32_t expert, uint32_t slot, uint32_t source, std::byte* arena,
                        std::vector<Extent>* extents) const {
  const Place& place = places_[expert];
  const shm::LayerRecord& layer = layers_[place.layer];
  const bool copy = source < copies_;
  const LayerPlaces& from = copy ? sources_[place.layer] : fallback_[place.layer];
  extents->clear();
  for (uint32_t p = 0; p < layer.parts; ++p) {
    const PartPlace& part = from.parts[p];
    const uint64_t offset = part.offset + place.index * part.stride;
    std::byte* const dest =
        arena + shm::TableView::PartOffset(layer, classes_[place.size_class], place.index, slot, p);
    Extent extent;
    if (!copy) {
      extent.file = part.file;
      extent.offset = offset;
      extent.needed = extent.bytes = part.bytes;
      extent.dest = dest;
      extent.through_cache = true;
      extents->push_back(extent);
      continue;
    }
    if (from.contiguous && p > 0) {
      Extent& whole = extents->back();
      whole.needed = offset + part.bytes - whole.offset;
      whole.bytes = RoundUp(whole.needed);
      continue;
    }
    const uint64_t skew = offset % kBlockAlign;
    extent.file = source * files_per_copy_ + part.file;
    extent.offset = offset - skew;
    extent.needed = skew + part.bytes;
    extent.bytes = RoundUp(extent.needed);
    extent.dest = dest - skew;
    extents->push_back(extent);
  }
}

void ExpertMap::Arrange(uint32_t expert, uint32_t slot, uint32_t source, std::byte* arena,
                        std::vector<std::byte>* scratch) const {
  const Place& place = places_[expert];
  const shm::LayerRecord& layer = layers_[place.layer];
  const LayerPlaces& from = source < copies_ ? sources_[place.layer] : fallback_[place.layer];
  for (uint32_t p = 0; p < layer.parts; ++p) {
    const PartPlace& part = from.parts[p];
    if (layer.layout[p] == part.layout) continue;
    std::byte* const at =
        arena + shm::TableView::PartOffset(layer, classes_[place.size_class], place.index, slot, p);
    scratch->resize(std::max<size_t>(scratch->size(), part.bytes));
    std::memcpy(scratch->data(), at, part.bytes);
    quant::InterleaveRows(part.type, static_cast<int64_t>(part.bytes / part.row_bytes),
                          part.row_bytes, scratch->data(), at);
  }
}

bool ExpertMap::ChecksumFits(uint32_t expert, uint32_t slot, const std::byte* arena) const {
  if (checksums_.empty()) return true;
  const Place& place = places_[expert];
  const shm::LayerRecord& layer = layers_[place.layer];
  std::array<std::span<const std::byte>, shm::kMaxParts> parts;
  for (uint32_t p = 0; p < layer.parts; ++p) {
    parts[p] = {
        arena + shm::TableView::PartOffset(layer, classes_[place.size_class], place.index, slot, p),
        layer.bytes[p]};
  }
  return pack::Checksum(std::span(parts).first(layer.parts)) == checksums_[expert];
}

std::vector<uint32_t> ExpertMap::FileOrder() const {
  const auto key = [this](uint32_t expert) {
    const Place& place = places_[expert];
    const PartPlace& part = sources_[place.layer].parts[0];
    return std::tuple(part.file, part.offset + place.index * part.stride);
  };
  std::vector<uint32_t> order(places_.size());
  for (uint32_t e = 0; e < order.size(); ++e) order[e] = e;
  std::sort(order.begin(), order.end(), [&key](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace strata::expertstore
