// Makes a pack file from a model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/gguf/expert_geometry.h"
#include "common/gguf/reader.h"
#include "common/pack/pack_file.h"
#include "common/quant/weight_layout.h"

namespace strata::pack {

// The header of a model's pack, without checksums: where everything will lie. Parts whose type
// gains by `layout` and that can have it get it; the others remain as in the file.
PackHeader LayOut(const gguf::ExpertGeometry& geometry, const Fingerprint& fingerprint,
                  quant::WeightLayout layout = quant::WeightLayout::kGguf);

struct WriteOptions {
  quant::WeightLayout layout = quant::WeightLayout::kGguf;
  bool overwrite = false;  // otherwise a file that is there is AlreadyExists
  // Called after each layer.
  std::function<void(uint64_t bytes_written, uint64_t bytes_total)> progress;
};

// Writes beside `path` and renames at the end, after everything has reached the drive: `path` is
// complete or not there. ResourceExhausted before the first byte if the drive has not room for it;
// a dense model is InvalidArgument. Returns the header as written.
absl::StatusOr<PackHeader> WritePack(const gguf::Model& model, const std::string& path,
                                     const WriteOptions& options);

}  // namespace strata::pack
