// A cursor over bytes that come from outside: every read says how much it needs and is refused if
// less remains, so no length in a file can lead past its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "common/base/status.h"

namespace strata::gguf {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  // The next n bytes; `what` names them in the error.
  absl::StatusOr<std::span<const std::byte>> Take(uint64_t n, std::string_view what) {
    if (n > remaining()) return Short(n, what);
    const std::span<const std::byte> taken = bytes_.subspan(offset_, n);
    offset_ += n;
    return taken;
  }

  // A little-endian number. The host is little endian too: asserted below.
  template <typename T>
  absl::StatusOr<T> Read(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (sizeof(T) > remaining()) return Short(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  // u64 length, then the bytes.
  absl::StatusOr<std::string_view> ReadString(uint64_t max_bytes, std::string_view what) {
    STRATA_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (length > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(A(what), " claims ", length, " bytes, more than the limit of ", max_bytes));
    }
    STRATA_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

 private:
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read without byte swapping");

  absl::Status Short(uint64_t needed, std::string_view what) const {
    return absl::OutOfRangeError(absl::StrCat("the file ends too early: ", A(what), " at byte ",
                                              offset_, " needs ", needed, " bytes, ", remaining(),
                                              " remain (incomplete download?)"));
  }

  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace strata::gguf
