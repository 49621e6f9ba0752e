// From the bytes of one GGUF file to its tables. Touches nothing but these bytes, so it can be
// fuzzed without a file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/gguf/metadata.h"
#include "common/gguf/tensor_info.h"

namespace strata::gguf {

struct ParsedFile {
  uint32_t version = 0;
  uint64_t alignment = 0;
  Metadata metadata;
  std::span<const std::byte> metadata_bytes;  // all key-value pairs as encoded
  std::vector<TensorInfo> tensors;            // in file order; TensorInfo::file is `file`
  uint64_t header_end = 0;                    // of the last tensor info
  uint64_t data_end = 0;                      // of the last tensor byte, without padding
};

// `bytes` must outlive the result. Checks everything that can be checked within one file: types,
// lengths, dimensions, alignment, that tensors lie inside the file and do not overlap, and that no
// key and no name occurs twice.
absl::StatusOr<ParsedFile> ParseFile(std::span<const std::byte> bytes, uint32_t file);

}  // namespace strata::gguf
