// Temporary memory of the operations: a stack of bytes that grows to its high-water mark in the
// first steps and allocates nothing afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace strata::compute {

class Scratch {
 public:
  // Memory that stays valid until Reset; aligned to 64 bytes, not initialised.
  std::byte* Take(size_t bytes);
  template <typename T>
  T* Take(size_t count) {
    return reinterpret_cast<T*>(Take(count * sizeof(T)));
  }
  // Gives everything back. If the last round needed several pieces, they become one.
  void Reset();

 private:
  struct Piece {
    std::unique_ptr<std::byte[]> memory;
    std::byte* begin;  // aligned
    size_t size;
  };
  void AddPiece(size_t bytes);

  std::vector<Piece> pieces_;
  size_t used_ = 0;   // of the last piece
  size_t total_ = 0;  // taken since Reset
};

}  // namespace strata::compute
