#include "common/gguf/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/base/checked.h"

namespace strata::gguf {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

template <typename T>
constexpr ValueType TypeOf() {
  if constexpr (std::is_same_v<T, uint8_t>) return ValueType::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return ValueType::kI8;
  if constexpr (std::is_same_v<T, uint16_t>) return ValueType::kU16;
  if constexpr (std::is_same_v<T, int16_t>) return ValueType::kI16;
  if constexpr (std::is_same_v<T, uint32_t>) return ValueType::kU32;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::kI32;
  if constexpr (std::is_same_v<T, float>) return ValueType::kF32;
  if constexpr (std::is_same_v<T, bool>) return ValueType::kBool;
  if constexpr (std::is_same_v<T, std::string>) return ValueType::kString;
  if constexpr (std::is_same_v<T, uint64_t>) return ValueType::kU64;
  if constexpr (std::is_same_v<T, int64_t>) return ValueType::kI64;
  if constexpr (std::is_same_v<T, double>) return ValueType::kF64;
}

template <typename T>
void Encode(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out.push_back(value ? 1 : 0);
  } else {
    static_assert(std::is_arithmetic_v<T>);
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

void Encode(std::string& out, std::string_view text) {
  Encode(out, uint64_t{text.size()});
  out.append(text);
}

void Encode(std::string& out, const std::string& text) { Encode(out, std::string_view(text)); }

void Encode(std::string& out, ValueType type) { Encode(out, static_cast<uint32_t>(type)); }

template <typename T>
void EncodeTyped(std::string& out, const T& value) {
  Encode(out, TypeOf<T>());
  Encode(out, value);
}

template <typename T>
void EncodeTyped(std::string& out, const std::vector<T>& values) {
  Encode(out, ValueType::kArray);
  Encode(out, TypeOf<T>());
  Encode(out, uint64_t{values.size()});
  for (const T value : values) Encode(out, value);
}

void EncodeTyped(std::string& out, const std::vector<std::string>& values) {
  Encode(out, ValueType::kArray);
  Encode(out, ValueType::kString);
  Encode(out, uint64_t{values.size()});
  for (const std::string& value : values) Encode(out, value);
}

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

absl::Status SyncFolderOf(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::filesystem::path folder = parent.empty() ? std::filesystem::path(".") : parent;
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot sync the folder '", folder.string(), "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Writer> Writer::Create(const std::string& path, uint64_t alignment) {
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    return absl::InvalidArgumentError(absl::StrCat(
        "alignment ", alignment, " is not a power of two between 1 and ", kMaxAlignment));
  }
  std::string temporary = path + ".XXXXXX";
  UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot create '", temporary, "'"));
  return Writer(path, std::move(temporary), std::move(fd), alignment);
}

Writer::Writer(std::string path, std::string temporary, UniqueFd fd, uint64_t alignment)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      fd_(std::move(fd)),
      alignment_(alignment) {
  if (alignment != kDefaultAlignment) Set(kKeyAlignment, static_cast<uint32_t>(alignment));
}

Writer::Writer(Writer&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)),
      alignment_(other.alignment_),
      error_(std::move(other.error_)),
      keys_(std::move(other.keys_)),
      pairs_(std::move(other.pairs_)),
      infos_(std::move(other.infos_)),
      tensors_(std::move(other.tensors_)),
      data_bytes_(other.data_bytes_),
      header_written_(other.header_written_),
      current_(other.current_),
      current_bytes_(other.current_bytes_),
      file_bytes_(other.file_bytes_),
      buffer_(std::move(other.buffer_)) {}

Writer::~Writer() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void Writer::Fail(const std::string& message) {
  if (error_.ok()) error_ = absl::InvalidArgumentError(absl::StrCat("'", path_, "': ", message));
}

void Writer::BeginPair(std::string_view key) {
  if (header_written_) Fail(absl::StrCat("key '", A(key), "' comes after tensor data"));
  if (key.empty() || key.size() > kMaxKeyBytes) {
    Fail(absl::StrCat("a key of ", key.size(), " bytes is not allowed"));
  }
  keys_.emplace_back(key);
  Encode(pairs_, key);
}

void Writer::Set(std::string_view key, const WriteValue& value) {
  BeginPair(key);
  std::visit([&](const auto& v) { EncodeTyped(pairs_, v); }, value);
}

void Writer::Set(std::string_view key, const Value& value) {
  BeginPair(key);
  if (value.is_array()) {
    Encode(pairs_, ValueType::kArray);
    Encode(pairs_, value.element_type());
    Encode(pairs_, value.size());
  } else {
    Encode(pairs_, value.type());
  }
  const std::span<const std::byte> payload = value.payload();
  pairs_.append(reinterpret_cast<const char*>(payload.data()), payload.size());
}

void Writer::DeclareTensor(std::string_view name, TensorType type, std::span<const uint64_t> dims) {
  const auto fail = [&](std::string_view why) {
    Fail(absl::StrCat("tensor '", A(name), "' ", A(why)));
  };
  if (header_written_) fail("is declared after tensor data");
  if (name.empty() || name.size() > kMaxTensorNameBytes) fail("has a name that is too long");
  if (dims.empty() || dims.size() > kMaxDims) return fail("must have 1 to 4 dimensions");
  std::optional<uint64_t> size = RowBytes(type, dims[0]);
  if (!size) return fail("has rows that are not whole blocks of its type");
  uint64_t values = dims[0];
  for (const uint64_t dim : dims.subspan(1)) {
    size = CheckedMul(*size, dim);
    const std::optional<uint64_t> product = CheckedMul(values, dim);
    if (!size || !product) return fail("is too large");
    values = *product;
  }
  if (values == 0 || values > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return fail("has an impossible number of values");
  }
  Encode(infos_, name);
  Encode(infos_, static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) Encode(infos_, dim);
  Encode(infos_, static_cast<uint32_t>(type));
  Encode(infos_, data_bytes_);
  tensors_.push_back({std::string(name), *size});
  const std::optional<uint64_t> end = CheckedAdd(data_bytes_, *size);
  const std::optional<uint64_t> next = end ? CheckedAlignUp(*end, alignment_) : std::nullopt;
  if (!next) return fail("does not fit in 64 bits of file");
  data_bytes_ = *next;
}

absl::Status Writer::WriteHeader() {
  std::vector<std::string_view> names(keys_.begin(), keys_.end());
  const auto check_unique = [&](std::string_view what) {
    std::sort(names.begin(), names.end());
    const auto twin = std::adjacent_find(names.begin(), names.end());
    if (twin != names.end()) Fail(absl::StrCat(A(what), " '", A(*twin), "' is given twice"));
  };
  check_unique("key");
  names.clear();
  for (const Tensor& tensor : tensors_) names.emplace_back(tensor.name);
  check_unique("tensor");
  if (keys_.size() > kMaxKeys || tensors_.size() > kMaxTensors) Fail("too many keys or tensors");
  STRATA_RETURN_IF_ERROR(error_);

  header_written_ = true;
  std::string head(kMagic);
  Encode(head, kVersion);
  Encode(head, uint64_t{tensors_.size()});
  Encode(head, uint64_t{keys_.size()});
  STRATA_RETURN_IF_ERROR(Append(BytesOf(head)));
  STRATA_RETURN_IF_ERROR(Append(BytesOf(pairs_)));
  STRATA_RETURN_IF_ERROR(Append(BytesOf(infos_)));
  return AppendPadding();
}

absl::Status Writer::WriteTensor(std::string_view name, std::span<const std::byte> bytes) {
  STRATA_RETURN_IF_ERROR(error_);
  if (!header_written_) STRATA_RETURN_IF_ERROR(WriteHeader());
  if (current_ == tensors_.size() || tensors_[current_].name != name) {
    Fail(absl::StrCat("data of tensor '", A(name), "' where ",
                      current_ == tensors_.size() ? "nothing more"
                                                  : absl::StrCat("'", tensors_[current_].name, "'"),
                      " was expected"));
    return error_;
  }
  const Tensor& tensor = tensors_[current_];
  if (bytes.size() > tensor.bytes - current_bytes_) {
    Fail(absl::StrCat("tensor '", A(name), "' has ", tensor.bytes, " bytes, got ",
                      current_bytes_ + bytes.size()));
    return error_;
  }
  STRATA_RETURN_IF_ERROR(Append(bytes));
  current_bytes_ += bytes.size();
  if (current_bytes_ < tensor.bytes) return absl::OkStatus();
  ++current_;
  current_bytes_ = 0;
  return AppendPadding();
}

absl::Status Writer::Append(std::span<const std::byte> bytes) {
  file_bytes_ += bytes.size();
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status Writer::AppendPadding() {
  const std::string zeros((alignment_ - file_bytes_ % alignment_) % alignment_, '\0');
  return Append(BytesOf(zeros));
}

absl::Status Writer::Flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("cannot write '", temporary_, "'"));
    rest.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status Writer::Finish() {
  STRATA_RETURN_IF_ERROR(error_);
  if (!header_written_) STRATA_RETURN_IF_ERROR(WriteHeader());
  if (current_ != tensors_.size()) {
    Fail(absl::StrCat("the data of tensor '", tensors_[current_].name, "' are missing or short"));
    return error_;
  }
  STRATA_RETURN_IF_ERROR(Flush());
  constexpr mode_t kReadableByAll = 0644;  // mkostemp makes private files
  if (fchmod(fd_.get(), kReadableByAll) != 0 || fsync(fd_.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot sync '", temporary_, "'"));
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rename '", temporary_, "' to '", path_, "'"));
  }
  temporary_.clear();
  fd_.Reset();
  return SyncFolderOf(path_);
}

}  // namespace strata::gguf
