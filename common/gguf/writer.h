// Writes GGUF version 3 files.
//
//   STRATA_ASSIGN_OR_RETURN(Writer writer, Writer::Create("model.gguf"));
//   writer.Set("general.architecture", std::string("llama"));
//   writer.DeclareTensor("output.weight", TensorType::kF16, {4096, 32000});
//   STRATA_RETURN_IF_ERROR(writer.WriteTensor("output.weight", bytes));
//   STRATA_RETURN_IF_ERROR(writer.Finish());
//
// First all keys and declarations, then the data in the order of the declarations: the header
// leaves with the first byte of data, so memory never holds more than the header. The file appears
// under its name only when Finish succeeds; until then it is a temporary file beside it, removed if
// the Writer goes away. Invalid input (a name twice, a row that is no whole number of blocks, data
// of the wrong size or order) is reported by the call that finds it, at the latest by Finish.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/gguf/format.h"
#include "common/gguf/metadata.h"
#include "common/quant/tensor_type.h"

namespace strata::gguf {

using WriteValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                                std::string, uint64_t, int64_t, double, std::vector<uint8_t>,
                                std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                                std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>,
                                std::vector<bool>, std::vector<std::string>, std::vector<uint64_t>,
                                std::vector<int64_t>, std::vector<double>>;

class Writer {
 public:
  // `alignment`: a power of two, at most kMaxAlignment. Written as general.alignment unless it is
  // the default.
  static absl::StatusOr<Writer> Create(const std::string& path,
                                       uint64_t alignment = kDefaultAlignment);
  Writer(Writer&& other) noexcept;
  Writer& operator=(Writer&&) = delete;
  ~Writer();

  void Set(std::string_view key, const WriteValue& value);
  // Copies a value of another file as it is.
  void Set(std::string_view key, const Value& value);

  // dims[0] is the contiguous one; 1 to 4 of them.
  void DeclareTensor(std::string_view name, TensorType type, std::span<const uint64_t> dims);
  void DeclareTensor(std::string_view name, TensorType type, std::initializer_list<uint64_t> dims) {
    DeclareTensor(name, type, std::span(dims.begin(), dims.size()));
  }

  // The next part of the named tensor's bytes, which must be the first unfinished one.
  absl::Status WriteTensor(std::string_view name, std::span<const std::byte> bytes);

  // Writes what is buffered, syncs the file and gives it its name.
  absl::Status Finish();

 private:
  struct Tensor {
    std::string name;
    uint64_t bytes = 0;
  };

  Writer(std::string path, std::string temporary, UniqueFd fd, uint64_t alignment);
  void BeginPair(std::string_view key);
  void Fail(const std::string& message);
  absl::Status WriteHeader();
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status AppendPadding();
  absl::Status Flush();

  std::string path_;
  std::string temporary_;  // empty once renamed or moved from
  UniqueFd fd_;
  uint64_t alignment_;
  absl::Status error_;  // first invalid input
  std::vector<std::string> keys_;
  std::string pairs_;  // encoded key-value pairs
  std::string infos_;  // encoded tensor infos
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;  // declared so far, with padding
  bool header_written_ = false;
  size_t current_ = 0;          // tensor being written
  uint64_t current_bytes_ = 0;  // of it, so far
  uint64_t file_bytes_ = 0;     // appended so far
  std::string buffer_;
};

}  // namespace strata::gguf
