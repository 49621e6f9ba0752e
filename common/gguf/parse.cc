#include "common/gguf/parse.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "common/base/checked.h"
#include "common/gguf/byte_reader.h"
#include "common/gguf/format.h"
#include "common/gguf/printable.h"
#include "common/gguf/recognize.h"

namespace strata::gguf {
namespace {

// The least a key-value pair or a tensor info can take: bounds their number by the file's size.
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

absl::Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return absl::OkStatus();
  if (const uint32_t swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 3) {
    return absl::UnimplementedError(
        absl::StrCat("a big-endian GGUF file (version ", swapped,
                     "), made for another kind of computer; get the little-endian file"));
  }
  if (version == 1) {
    return absl::UnimplementedError(
        "GGUF version 1 (before October 2023) is not supported; get or convert to version 3");
  }
  return absl::UnimplementedError(
      absl::StrCat("GGUF version ", version, " is not supported; known versions are 2 and 3"));
}

absl::Status CheckCount(uint64_t count, uint64_t limit, uint64_t min_bytes, uint64_t remaining,
                        std::string_view what) {
  if (count > limit) {
    return Invalid(absl::StrCat("the header claims ", count, " ", A(what),
                                ", more than the limit of ", limit));
  }
  if (count * min_bytes > remaining) {  // cannot overflow: both are small
    return absl::OutOfRangeError(absl::StrCat("the header claims ", count, " ", A(what),
                                              ", which cannot fit in the ", remaining,
                                              " bytes that follow (incomplete download?)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueType> ReadValueType(ByteReader& reader) {
  STRATA_ASSIGN_OR_RETURN(const uint32_t id, reader.Read<uint32_t>("value type"));
  if (id >= kValueTypeCount) {
    return Invalid(absl::StrCat("unknown value type ", id, "; known are 0 (u8) to 12 (f64)"));
  }
  return static_cast<ValueType>(id);
}

// Moves past `count` encoded elements, checking each as far as its type allows.
absl::StatusOr<std::span<const std::byte>> TakeElements(ByteReader& reader,
                                                        std::span<const std::byte> bytes,
                                                        ValueType type, uint64_t count) {
  const uint64_t begin = reader.offset();
  if (type == ValueType::kString) {
    if (count > reader.remaining() / sizeof(uint64_t)) {
      return absl::OutOfRangeError(absl::StrCat("an array of ", count,
                                                " strings cannot fit in the remaining ",
                                                reader.remaining(), " bytes"));
    }
    for (uint64_t i = 0; i < count; ++i) {
      STRATA_RETURN_IF_ERROR(reader.ReadString(kMaxStringBytes, "string").status());
    }
    return bytes.subspan(begin, reader.offset() - begin);
  }
  const std::optional<uint64_t> size = CheckedMul(count, FixedSize(type));
  if (!size) return Invalid(absl::StrCat("an array of ", count, " elements is impossible"));
  STRATA_ASSIGN_OR_RETURN(const std::span<const std::byte> payload, reader.Take(*size, "value"));
  if (type == ValueType::kBool) {
    const auto is_bool = [](std::byte b) { return b == std::byte{0} || b == std::byte{1}; };
    const auto bad = std::find_if_not(payload.begin(), payload.end(), is_bool);
    if (bad != payload.end()) {
      return Invalid(absl::StrCat("a bool is ", static_cast<int>(*bad), ", not 0 or 1"));
    }
  }
  return payload;
}

absl::StatusOr<Value> ReadValue(ByteReader& reader, std::span<const std::byte> bytes) {
  STRATA_ASSIGN_OR_RETURN(const ValueType type, ReadValueType(reader));
  if (type != ValueType::kArray) {
    STRATA_ASSIGN_OR_RETURN(const std::span<const std::byte> payload,
                            TakeElements(reader, bytes, type, 1));
    return Value(type, /*is_array=*/false, 1, payload);
  }
  STRATA_ASSIGN_OR_RETURN(const ValueType element, ReadValueType(reader));
  if (element == ValueType::kArray) return Invalid("an array of arrays is not supported");
  STRATA_ASSIGN_OR_RETURN(const uint64_t count, reader.Read<uint64_t>("array length"));
  STRATA_ASSIGN_OR_RETURN(const std::span<const std::byte> payload,
                          TakeElements(reader, bytes, element, count));
  return Value(element, /*is_array=*/true, count, payload);
}

absl::StatusOr<Metadata> ReadMetadata(ByteReader& reader, std::span<const std::byte> bytes,
                                      uint64_t count) {
  std::vector<Metadata::Entry> entries;
  entries.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const absl::StatusOr<std::string_view> key = reader.ReadString(kMaxKeyBytes, "key");
    if (!key.ok()) return Annotate(key.status(), absl::StrCat("key ", i, " of ", count));
    const absl::StatusOr<Value> value = ReadValue(reader, bytes);
    if (!value.ok()) return Annotate(value.status(), absl::StrCat("key '", Printable(*key), "'"));
    entries.push_back({*key, *value});
  }
  return Metadata::Make(std::move(entries));
}

absl::StatusOr<uint64_t> ReadAlignment(const Metadata& metadata) {
  STRATA_ASSIGN_OR_RETURN(const uint64_t alignment,
                          metadata.GetUint(kKeyAlignment, kDefaultAlignment));
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    return Invalid(absl::StrCat("general.alignment is ", alignment,
                                ", not a power of two between 1 and ", kMaxAlignment));
  }
  return alignment;
}

absl::StatusOr<TensorType> ReadTensorType(ByteReader& reader) {
  STRATA_ASSIGN_OR_RETURN(const uint32_t id, reader.Read<uint32_t>("tensor type"));
  if (const TensorTypeInfo* info = FindTensorType(id); info != nullptr) return info->type;
  std::string known;
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", A(info.name), " (",
                    static_cast<uint32_t>(info.type), ")");
  }
  return absl::UnimplementedError(
      absl::StrCat("unknown tensor type ", id, "; known types are ", known));
}

absl::Status ReadShape(ByteReader& reader, TensorInfo& tensor) {
  STRATA_ASSIGN_OR_RETURN(tensor.n_dims, reader.Read<uint32_t>("number of dimensions"));
  if (tensor.n_dims > kMaxDims) {
    return Invalid(absl::StrCat(tensor.n_dims, " dimensions, more than the limit of ", kMaxDims));
  }
  uint64_t values = 1;
  for (uint32_t d = 0; d < tensor.n_dims; ++d) {
    STRATA_ASSIGN_OR_RETURN(tensor.dims[d], reader.Read<uint64_t>("dimension"));
    const std::optional<uint64_t> product = CheckedMul(values, tensor.dims[d]);
    if (!product || *product > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Invalid(absl::StrCat("dimension ", d, " is ", tensor.dims[d],
                                  ": more values than 63 bits can count"));
    }
    if (*product == 0) return Invalid(absl::StrCat("dimension ", d, " is 0"));
    values = *product;
  }
  return absl::OkStatus();
}

// Leaves the offset relative to the tensor data, whose start is known only after the last info.
absl::Status ReadTensorInfo(ByteReader& reader, TensorInfo& tensor) {
  STRATA_RETURN_IF_ERROR(ReadShape(reader, tensor));
  STRATA_ASSIGN_OR_RETURN(tensor.type, ReadTensorType(reader));
  const std::optional<uint64_t> row = RowBytes(tensor.type, tensor.cols());
  if (!row) {
    return Invalid(absl::StrCat("rows of ", tensor.cols(), " values cannot be of type ",
                                A(NameOf(tensor.type)), ", which comes in blocks of ",
                                InfoOf(tensor.type).block_values));
  }
  const std::optional<uint64_t> size = CheckedMul(*row, tensor.rows());
  if (!size) return Invalid("the size in bytes overflows 64 bits");
  tensor.bytes = *size;
  STRATA_ASSIGN_OR_RETURN(tensor.offset, reader.Read<uint64_t>("tensor offset"));
  return absl::OkStatus();
}

absl::Status ReadTensorInfos(ByteReader& reader, uint64_t count, uint32_t file,
                             std::vector<TensorInfo>& tensors) {
  tensors.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo tensor;
    tensor.file = file;
    const absl::StatusOr<std::string_view> name =
        reader.ReadString(kMaxTensorNameBytes, "tensor name");
    if (!name.ok()) return Annotate(name.status(), absl::StrCat("tensor ", i, " of ", count));
    tensor.name = *name;
    STRATA_RETURN_IF_ERROR(Annotate(ReadTensorInfo(reader, tensor),
                                    absl::StrCat("tensor '", Printable(tensor.name), "'")));
    tensors.push_back(tensor);
  }
  return absl::OkStatus();
}

// Makes offsets absolute and checks alignment and overflow; sets data_end.
absl::Status PlaceTensors(ParsedFile& parsed) {
  const std::optional<uint64_t> start = CheckedAlignUp(parsed.header_end, parsed.alignment);
  if (!start) return Invalid("the header ends beyond 64 bits");
  parsed.data_end = parsed.header_end;
  for (TensorInfo& tensor : parsed.tensors) {
    if (tensor.offset % parsed.alignment != 0) {
      return Invalid(absl::StrCat("tensor '", Printable(tensor.name), "' has offset ",
                                  tensor.offset, ", not a multiple of the alignment ",
                                  parsed.alignment));
    }
    const std::optional<uint64_t> begin = CheckedAdd(*start, tensor.offset);
    const std::optional<uint64_t> end = begin ? CheckedAdd(*begin, tensor.bytes) : std::nullopt;
    if (!end) {
      return Invalid(absl::StrCat("tensor '", Printable(tensor.name),
                                  "' has the impossible offset ", tensor.offset));
    }
    tensor.offset = *begin;
    parsed.data_end = std::max(parsed.data_end, *end);
  }
  return absl::OkStatus();
}

absl::Status CheckInsideFile(const ParsedFile& parsed, uint64_t file_bytes) {
  if (parsed.data_end <= file_bytes) return absl::OkStatus();
  const auto ends_outside = [&](const TensorInfo& t) { return t.offset + t.bytes > file_bytes; };
  const auto outside = std::count_if(parsed.tensors.begin(), parsed.tensors.end(), ends_outside);
  const auto first = std::find_if(parsed.tensors.begin(), parsed.tensors.end(), ends_outside);
  return absl::OutOfRangeError(absl::StrCat(
      "the file is truncated: ", parsed.data_end - file_bytes, " bytes are missing (its tensors ",
      "need ", parsed.data_end, " bytes, it has ", file_bytes, "); ", outside, " of ",
      parsed.tensors.size(), " tensors are cut, the first is '", Printable(first->name),
      "'. Finish the download, or join byte-split parts (.part1of2) with cat"));
}

absl::Status CheckNoOverlap(const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
      return Invalid(absl::StrCat("tensors '", Printable(order[i - 1]->name), "' and '",
                                  Printable(order[i]->name), "' overlap"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedFile> ParseFile(std::span<const std::byte> bytes, uint32_t file) {
  STRATA_RETURN_IF_ERROR(CheckIsGguf(bytes));
  ParsedFile parsed;
  ByteReader reader(bytes);
  STRATA_RETURN_IF_ERROR(reader.Take(kMagic.size(), "magic").status());
  STRATA_ASSIGN_OR_RETURN(parsed.version, reader.Read<uint32_t>("version"));
  STRATA_RETURN_IF_ERROR(CheckVersion(parsed.version));
  STRATA_ASSIGN_OR_RETURN(const uint64_t n_tensors, reader.Read<uint64_t>("tensor count"));
  STRATA_ASSIGN_OR_RETURN(const uint64_t n_keys, reader.Read<uint64_t>("key count"));
  STRATA_RETURN_IF_ERROR(CheckCount(n_keys, kMaxKeys, kMinPairBytes, reader.remaining(), "keys"));
  STRATA_RETURN_IF_ERROR(
      CheckCount(n_tensors, kMaxTensors, kMinTensorBytes, reader.remaining(), "tensors"));

  const uint64_t metadata_begin = reader.offset();
  STRATA_ASSIGN_OR_RETURN(parsed.metadata, ReadMetadata(reader, bytes, n_keys));
  parsed.metadata_bytes = bytes.subspan(metadata_begin, reader.offset() - metadata_begin);
  STRATA_ASSIGN_OR_RETURN(parsed.alignment, ReadAlignment(parsed.metadata));
  STRATA_RETURN_IF_ERROR(ReadTensorInfos(reader, n_tensors, file, parsed.tensors));
  parsed.header_end = reader.offset();

  STRATA_RETURN_IF_ERROR(PlaceTensors(parsed));
  STRATA_RETURN_IF_ERROR(CheckInsideFile(parsed, bytes.size()));
  STRATA_RETURN_IF_ERROR(CheckNoOverlap(parsed.tensors));
  return parsed;
}

}  // namespace strata::gguf
