// Owner of one mmap(2) region; unmaps it when destroyed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace strata {

class MemoryMap {
 public:
  MemoryMap() = default;
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;
  ~MemoryMap();

  // A file's first `size` bytes, shared with every other reader of it. size = 0 maps the whole
  // file.
  static absl::StatusOr<MemoryMap> ReadFile(const std::string& path, size_t size = 0);
  // A descriptor (memfd, file), read-only or writable, shared; from 2 MiB on at a multiple of that,
  // so that huge pages of it are mapped as such.
  static absl::StatusOr<MemoryMap> Shared(int fd, size_t size, bool writable);
  // Zeroed private memory; asks for transparent huge pages when `huge`.
  static absl::StatusOr<MemoryMap> Anonymous(size_t size, bool huge);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MemoryMap(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace strata
