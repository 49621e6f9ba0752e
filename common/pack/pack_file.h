// The pack file: a model's experts once more, each in one piece, so that one contiguous read past
// the page cache brings all of it and its checksum tells whether it is what was written.
//
//   0              PackHeader as below, zeros up to a multiple of 4096 (header_bytes)
//   header_bytes   expert 0 of the first layer: gate | up | down (or gate_up | down), zeros up to a
//                  multiple of 4096 (the layer's stride); expert 1; ... all layers, ascending
//
// Header, numbers in the byte order of the machine that wrote it:
//
//   bytes  field
//       8  magic, "STRATAPK"
//       4  version, 1
//       4  byte order: 0x01020304 as that machine writes it
//       8  header_bytes
//       8  file_bytes
//      16  fingerprint of the model it was made from (gguf::Model::Fingerprint)
//       4  number of layers
//       4  zero
//       8  XXH3-64 of the header's bytes, with zeros in this field's place
//     for each layer with experts:
//       4  layer number    4  experts    4  parts (1 to 3)    4  zero
//       8  offset of expert 0 in the file    8  stride: bytes from one expert to the next
//     and for each of its parts:
//       4  GGUF tensor type    4  layout of the weights (common/quant/weight_layout.h)
//       8  start in the expert, a multiple of 64    8  bytes
//     then for each layer, for each expert:
//       8  XXH3-64 of its parts' bytes, one after the other, without what lies between them
//
// Everything a program reads from a header is checked before it is believed (ParseHeader).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/quant/weight_layout.h"

namespace strata::pack {

inline constexpr uint64_t kBlock = 4096;    // of offsets and strides, as O_DIRECT wants it
inline constexpr uint64_t kPartAlign = 64;  // of a part in its expert
inline constexpr uint32_t kMostParts = 3;
inline constexpr uint64_t kMostHeaderBytes = 64 << 20;

using Fingerprint = std::array<std::byte, 16>;

struct PackPart {
  uint32_t type = 0;
  quant::WeightLayout layout = quant::WeightLayout::kGguf;
  uint64_t start = 0;
  uint64_t bytes = 0;
  bool operator==(const PackPart&) const = default;
};

struct PackLayer {
  uint32_t layer = 0;
  uint32_t experts = 0;
  uint64_t offset = 0;
  uint64_t stride = 0;
  std::vector<PackPart> parts;
  std::vector<uint64_t> checksums;  // by expert
  bool operator==(const PackLayer&) const = default;
};

struct PackHeader {
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
  Fingerprint fingerprint{};
  std::vector<PackLayer> layers;  // ascending
  bool operator==(const PackHeader&) const = default;
};

// Of one expert, from its parts.
uint64_t Checksum(std::span<const std::span<const std::byte>> parts);

// The header as it stands in the file: header_bytes bytes.
std::vector<std::byte> Serialize(const PackHeader& header);

// `start`: the file's first bytes, at least its header; `file_bytes`: the file's size. Errors say
// what is wrong: not a pack file, another version or byte order, cut short, damaged. After success
// every expert lies inside the file behind the header, layers ascend and overlap nowhere.
absl::StatusOr<PackHeader> ParseHeader(std::span<const std::byte> start, uint64_t file_bytes);

// Reads and parses the header of the file at `path`; errors name it.
absl::StatusOr<PackHeader> ReadHeader(const std::string& path);

}  // namespace strata::pack
