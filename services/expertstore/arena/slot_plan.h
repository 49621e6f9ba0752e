// How the arena is cut into slots: from the places of experts in files and a number of bytes to the
// layer and class records of the residency table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/shm/protocol.h"
#include "services/expertstore/arena/expert_places.h"
#include "services/expertstore/io/read_queue.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

struct SlotPlan {
  std::vector<shm::LayerRecord> layers;   // by layer number
  std::vector<shm::ClassRecord> classes;  // one after the other in the arena
  uint32_t experts = 0;
  uint32_t slots = 0;
  uint64_t bytes = 0;        // of all slots
  uint64_t all_bytes = 0;    // that slots for all experts would take
  uint64_t least_bytes = 0;  // that the fewest useful slots would take
};

// Layers whose experts need slots of (nearly) the same size share a class. When the bytes do not
// suffice for all experts, every class gets its share by bytes, and at least `min_slots` slots (the
// experts one token uses in a layer), or ResourceExhausted says how much is needed.
absl::StatusOr<SlotPlan> PlanSlots(const Places& places, uint64_t bytes, uint32_t min_slots);
inline absl::StatusOr<SlotPlan> PlanSlots(const gguf::ExpertGeometry& geometry, uint64_t bytes,
                                          uint32_t min_slots) {
  return PlanSlots(PlacesInModel(geometry), bytes, min_slots);
}

// Lets the slots hold the layout rows8 wherever the kernels gain by it and the files have rows:
// ExpertMap::Arrange then makes it of what is read.
void InterleaveSlots(const Places& places, SlotPlan* plan);

// Experts by number: where they are in the model and in the files they are read from.
class ExpertMap {
 public:
  ExpertMap(const ExpertFiles& files, const SlotPlan& plan);

  struct Place {
    uint32_t layer = 0;  // layer number
    uint32_t index = 0;  // in the layer
    uint32_t size_class = 0;
  };
  const Place& place(uint32_t expert) const { return places_[expert]; }
  uint32_t experts() const { return static_cast<uint32_t>(places_.size()); }

  // Files with the same places, of which any will do; and after them, with its bytes to be read
  // through the page cache since they lie elsewhere in their blocks, perhaps the model itself.
  uint32_t copies() const { return copies_; }
  uint32_t copied_files() const { return copies_ * files_per_copy_; }
  uint32_t sources() const { return copies_ + (fallback_.empty() ? 0 : 1); }

  // What to read from `source` to have `expert` in `slot` of the arena that begins at `arena`.
  void Extents(uint32_t expert, uint32_t slot, uint32_t source, std::byte* arena,
               std::vector<Extent>* extents) const;
  // After `expert` was read into `slot` from `source`: brings its weights into the layout of the
  // slot, where the source has them as in the model. `scratch` is grown to the size of the largest
  // part.
  void Arrange(uint32_t expert, uint32_t slot, uint32_t source, std::byte* arena,
               std::vector<std::byte>* scratch) const;
  // False if the pack knows the expert's checksum and what lies in `slot` has another.
  bool ChecksumFits(uint32_t expert, uint32_t slot, const std::byte* arena) const;
  // All experts, in the order of their first part in the files.
  std::vector<uint32_t> FileOrder() const;

 private:
  std::vector<shm::LayerRecord> layers_;
  std::vector<shm::ClassRecord> classes_;
  std::vector<LayerPlaces> sources_;   // by layer number, in the first copy
  std::vector<LayerPlaces> fallback_;  // by layer number
  uint32_t copies_ = 1;
  uint32_t files_per_copy_ = 0;
  std::vector<uint64_t> checksums_;
  std::vector<Place> places_;
};

}  // namespace strata::expertstore
