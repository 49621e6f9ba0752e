// Where experts lie in the files they are read from: the model's GGUF, or packs made from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/gguf/expert_geometry.h"
#include "common/pack/pack_file.h"
#include "common/quant/tensor_type.h"
#include "common/quant/weight_layout.h"
#include "common/shm/protocol.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

// Of expert e: `bytes` at offset + e * stride of file `file`, rows of `row_bytes` in `layout`.
struct PartPlace {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t stride = 0;
  uint64_t bytes = 0;
  TensorType type = TensorType::kF32;
  uint64_t row_bytes = 0;
  quant::WeightLayout layout = quant::WeightLayout::kGguf;
};

struct LayerPlaces {
  uint32_t layer = 0;
  uint32_t experts = 0;
  std::vector<PartPlace> parts;  // gate, up, down; or gate_up, down
  // The parts follow one another in one block-aligned piece: one read brings all of them.
  bool contiguous = false;
};

inline constexpr size_t kMostCopies = 16;  // files that one expert may be read from

using Places = std::vector<LayerPlaces>;  // layers with experts, ascending

Places PlacesInModel(const gguf::ExpertGeometry& geometry);
// Of a pack that is file number 0. FailedPrecondition if it does not hold this model's experts.
absl::StatusOr<Places> PlacesInPack(const pack::PackHeader& header,
                                    const gguf::ExpertGeometry& geometry,
                                    const shm::Fingerprint& fingerprint);

// All that can be read. The first `files_per_copy` files are one copy; further copies with the same
// places follow it, then, if `fallback` is not empty, the model's own files.
struct ExpertFiles {
  std::vector<std::string> files;
  uint32_t files_per_copy = 0;
  uint32_t copies = 1;
  Places places;
  Places fallback;                  // file numbers count in `files`
  std::vector<uint64_t> checksums;  // by expert number; empty: none are known
};

// From the model alone, from `mirrors` of it (each its list of files; the caller made sure that
// they are equal), or from packs. Errors name the file and say what is wrong with it.
absl::StatusOr<ExpertFiles> FindExpertFiles(const gguf::ExpertGeometry& geometry,
                                            const shm::Fingerprint& fingerprint,
                                            const std::vector<std::vector<std::string>>& mirrors,
                                            const std::vector<std::string>& packs);

}  // namespace strata::expertstore
