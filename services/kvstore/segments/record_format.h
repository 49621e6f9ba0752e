// The bytes of one record in a segment file.
//
//   header (64 bytes, below) | description | zeros up to a multiple of 4096
//   data                     | zeros up to a multiple of 4096
//
// The header names the segment and the place it was written to, so bytes that were meant for
// another place are not taken for a record, and its checksum covers the description. With it the
// index can be put together again from the segments alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/state/block_id.h"

namespace strata::kvstore {

using state::BlockId;

// Where a record lies: all of it, in multiples of kAlign.
struct Extent {
  uint32_t segment = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0 = nowhere

  bool operator==(const Extent&) const = default;
};

struct RecordHeader {
  uint32_t segment = 0;
  uint64_t offset = 0;
  uint32_t description_bytes = 0;
  uint64_t data_bytes = 0;
  BlockId id;
  uint64_t data_checksum = 0;  // XXH3-64

  static constexpr uint64_t kBytes = 64;
  // A description holds the tokens of a block and little else.
  static constexpr uint32_t kMaxDescriptionBytes = 1 << 20;
  static constexpr uint64_t kMaxDataBytes = uint64_t{1} << 32;

  uint64_t DataOffset() const;  // in the record
  uint64_t RecordBytes() const;
};

uint64_t Checksum(std::string_view bytes);  // XXH3-64

// Writes kBytes to `out`.
void EncodeHeader(const RecordHeader& header, std::string_view description, char* out);
// `bytes` begins with a header; its description may not be there in whole yet (see HeaderIsIntact).
// Empty unless the header claims to lie at this place and its sizes are possible.
std::optional<RecordHeader> DecodeHeader(std::string_view bytes, uint32_t segment, uint64_t offset);
// `bytes` hold the header and all of its description: whether they are as they were written.
bool HeaderIsIntact(const RecordHeader& header, std::string_view bytes);

}  // namespace strata::kvstore
