#include "services/compute/cpu/scratch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace strata::compute {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kSmallestPiece = size_t{1} << 16;

}  // namespace

void Scratch::AddPiece(size_t bytes) {
  Piece piece;
  piece.memory = std::make_unique_for_overwrite<std::byte[]>(bytes + kAlign);
  const auto address = reinterpret_cast<uintptr_t>(piece.memory.get());
  piece.begin = piece.memory.get() + (kAlign - address % kAlign) % kAlign;
  piece.size = bytes;
  pieces_.push_back(std::move(piece));
  used_ = 0;
}

std::byte* Scratch::Take(size_t bytes) {
  bytes = (bytes + kAlign - 1) / kAlign * kAlign;
  if (pieces_.empty() || pieces_.back().size - used_ < bytes) {
    AddPiece(std::max(bytes, kSmallestPiece));
  }
  std::byte* memory = pieces_.back().begin + used_;
  used_ += bytes;
  total_ += bytes;
  return memory;
}

void Scratch::Reset() {
  if (pieces_.size() > 1) {
    pieces_.clear();
    AddPiece(total_);
  }
  used_ = 0;
  total_ = 0;
}

}  // namespace strata::compute
