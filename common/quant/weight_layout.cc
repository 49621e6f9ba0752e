#include "common/quant/weight_layout.h"

#include <cassert>
#include <cstring>

namespace strata::quant {
namespace {

// Whether a block's odd bytes, what is left of whole words, come behind them.
bool OddBytesLast(TensorType type) {
  using enum TensorType;
  return type == kQ3_K || type == kQ6_K || type == kTQ1_0 || type == kTQ2_0;
}

// Calls fn(offset, size) for the elements of a block.
template <typename Fn>
void ForElements(TensorType type, Fn fn) {
  const size_t bytes = InfoOf(type).block_bytes;
  const size_t odd = bytes % 4;
  const size_t words = OddBytesLast(type) ? 0 : odd;  // where they begin
  if (odd != 0) fn(OddBytesLast(type) ? bytes - odd : 0, odd);
  for (size_t at = words; at + 4 <= words + bytes - odd; at += 4) fn(at, size_t{4});
}

// Calls fn(place in the eight rows as in the file, place when interleaved, size).
template <typename Fn>
void ForPieces(TensorType type, size_t row_bytes, Fn fn) {
  const size_t block = InfoOf(type).block_bytes;
  for (size_t begin = 0; begin < row_bytes; begin += block) {
    ForElements(type, [&](size_t offset, size_t size) {
      const size_t to = kInterleavedRows * (begin + offset);
      for (size_t r = 0; r < kInterleavedRows; ++r) {
        fn(r * row_bytes + begin + offset, to + size * r, size);
      }
    });
  }
}

// The same for a matrix of rows.
template <typename Fn>
void ForPiecesOfRows(TensorType type, int64_t rows, size_t row_bytes, Fn fn) {
  assert(rows % kInterleavedRows == 0);
  for (size_t begin = 0; begin < static_cast<size_t>(rows) * row_bytes;
       begin += kInterleavedRows * row_bytes) {
    ForPieces(type, row_bytes, [&](size_t plain, size_t interleaved, size_t size) {
      fn(begin + plain, begin + interleaved, size);
    });
  }
}

void Copy(std::byte* to, const std::byte* from, size_t size) {
  if (size == 4) {  // a constant makes it one instruction
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, size);
  }
}

}  // namespace

std::string_view NameOf(WeightLayout layout) {
  return layout == WeightLayout::kRows8 ? "rows8" : "gguf";
}

bool GainsFromRows8(TensorType type) {
  using enum TensorType;
  switch (type) {
    case kQ4_0:
    case kQ4_1:
    case kIQ4_NL:
    case kMXFP4:
    case kNVFP4:
    case kQ2_0:
    case kQ2_K:
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
    case kIQ4_XS:
      return true;
    default:
      return false;
  }
}

void InterleaveRows(TensorType type, int64_t rows, size_t row_bytes, const std::byte* from,
                    std::byte* to) {
  ForPiecesOfRows(type, rows, row_bytes, [&](size_t plain, size_t interleaved, size_t size) {
    Copy(to + interleaved, from + plain, size);
  });
}

void DeinterleaveRows(TensorType type, int64_t rows, size_t row_bytes, const std::byte* from,
                      std::byte* to) {
  ForPiecesOfRows(type, rows, row_bytes, [&](size_t plain, size_t interleaved, size_t size) {
    Copy(to + plain, from + interleaved, size);
  });
}

void ExtractRow(TensorType type, int64_t row, size_t row_bytes, const std::byte* matrix,
                std::byte* to) {
  const std::byte* eight = matrix + row / kInterleavedRows * kInterleavedRows * row_bytes;
  const auto r = static_cast<size_t>(row % kInterleavedRows);
  const size_t block = InfoOf(type).block_bytes;
  for (size_t begin = 0; begin < row_bytes; begin += block) {
    ForElements(type, [&](size_t offset, size_t size) {
      Copy(to + begin + offset, eight + kInterleavedRows * (begin + offset) + size * r, size);
    });
  }
}

}  // namespace strata::quant
