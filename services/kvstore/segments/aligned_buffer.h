// Memory that direct I/O accepts: it begins at a multiple of kAlign.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

namespace strata::kvstore {

// Of the memory, the place in the file and the length of direct reads and writes. No drive of today
// has larger sectors, and files are allocated in pieces of this size.
inline constexpr uint64_t kAlign = 4096;

constexpr uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(uint64_t bytes) : size_(AlignUp(bytes)) {
    // Buffers live for one block. In small pages the kernel would take as long to find 4 MB of
    // memory as the drive to fill a fifth of it.
    const uint64_t align = size_ >= kHugePage ? kHugePage : kAlign;
    const uint64_t whole = (size_ + align - 1) / align * align;
    data_.reset(static_cast<char*>(std::aligned_alloc(align, whole)));
    if (data_ == nullptr) throw std::bad_alloc();
    if (align == kHugePage) madvise(data_.get(), whole, MADV_HUGEPAGE);
  }

  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  uint64_t size() const { return size_; }

 private:
  static constexpr uint64_t kHugePage = 2 << 20;

  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  uint64_t size_ = 0;
  std::unique_ptr<char, Free> data_;
};

// A value as it was read: owns its bytes.
class BlockData {
 public:
  BlockData() = default;
  BlockData(AlignedBuffer buffer, uint64_t bytes) : buffer_(std::move(buffer)), bytes_(bytes) {}

  std::string_view view() const { return {buffer_.data(), bytes_}; }
  uint64_t size() const { return bytes_; }

 private:
  AlignedBuffer buffer_;
  uint64_t bytes_ = 0;
};

}  // namespace strata::kvstore
