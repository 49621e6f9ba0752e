#include "tests/fuzz/gguf_corpus.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/base/status.h"

namespace strata::gguf {
namespace {

// Type ids of the format, spelled as numbers: a test must not share constants with its subject.
constexpr uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7;
constexpr uint32_t kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;
constexpr uint32_t kTensorF32 = 0, kTensorQ8_0 = 8;
constexpr uint64_t kAlignment = 32;

uint64_t AlignUp(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

FieldMap::FieldMap() {
  Text("magic", "GGUF");
  Number("version", uint32_t{3});
  Number("n_tensors", uint64_t{6});
  Number("n_keys", uint64_t{20});

  TextValue("general.architecture", "moe");
  TextValue("general.name", "fuzz");
  Scalar("general.alignment", kU32, uint32_t{kAlignment});
  Scalar("moe.block_count", kU32, uint32_t{1});
  Scalar("moe.expert_used_count", kU32, uint32_t{2});
  Scalar("moe.embedding_length", kU32, uint32_t{32});
  Scalar("moe.attention.head_count", kU32, uint32_t{2});
  Array("moe.attention.head_count_kv", kU32, std::vector<uint32_t>{1});
  Scalar("a.u8", kU8, uint8_t{255});
  Scalar("a.i8", kI8, int8_t{-1});
  Scalar("a.u16", kU16, uint16_t{3});
  Scalar("a.i16", kI16, int16_t{-4});
  Scalar("a.f32", kF32, 1.5F);
  Scalar("a.bool", kBool, uint8_t{1});
  Scalar("a.u64", kU64, uint64_t{7});
  Scalar("a.i64", kI64, int64_t{-8});
  Scalar("a.f64", kF64, 2.5);
  Array("b.i32s", kI32, std::vector<int32_t>{1, -2, 3});
  Array("b.bools", kBool, std::vector<uint8_t>{0, 1});
  Texts("b.texts", {"<s>", "", "tok"});

  Tensor("token_embd.weight", {32, 5}, kTensorF32, 32 * 5 * 4);
  Tensor("blk.0.attn_k.weight", {32, 16}, kTensorQ8_0, 32 * 16 / 32 * 34);
  Tensor("blk.0.ffn_gate_exps.weight", {32, 2, 3}, kTensorF32, 32 * 2 * 3 * 4);
  Tensor("blk.0.ffn_up_exps.weight", {32, 2, 3}, kTensorF32, 32 * 2 * 3 * 4);
  Tensor("blk.0.ffn_down_exps.weight", {2, 32, 3}, kTensorF32, 32 * 2 * 3 * 4);
  Tensor("output_norm.weight", {32}, kTensorF32, 32 * 4);
  bytes_.resize(AlignUp(bytes_.size()) + data_bytes_, 'x');
}

template <typename T>
void FieldMap::Number(const std::string& name, T value) {
  fields_.push_back({name, bytes_.size(), sizeof(T), false});
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void FieldMap::Text(const std::string& name, std::string_view text) {
  fields_.push_back({name, bytes_.size(), text.size(), true});
  bytes_.append(text);
}

template <typename T>
void FieldMap::Scalar(const std::string& key, uint32_t type, T value) {
  Number(key + "/key_length", uint64_t{key.size()});
  Text(key + "/key", key);
  Number(key + "/type", type);
  Number(key + "/value", value);
}

void FieldMap::TextValue(const std::string& key, std::string_view text) {
  Scalar(key, kString, uint64_t{text.size()});
  Text(key + "/text", text);
}

template <typename T>
void FieldMap::Array(const std::string& key, uint32_t type, const std::vector<T>& values) {
  Scalar(key, kArray, type);
  Number(key + "/count", uint64_t{values.size()});
  for (size_t i = 0; i < values.size(); ++i) Number(absl::StrCat(key, "/", i), values[i]);
}

void FieldMap::Texts(const std::string& key, const std::vector<std::string>& values) {
  Scalar(key, kArray, kString);
  Number(key + "/count", uint64_t{values.size()});
  for (size_t i = 0; i < values.size(); ++i) {
    Number(absl::StrCat(key, "/", i, "/length"), uint64_t{values[i].size()});
    Text(absl::StrCat(key, "/", i), values[i]);
  }
}

void FieldMap::Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                      uint64_t bytes) {
  Number(name + "/name_length", uint64_t{name.size()});
  Text(name + "/name", name);
  Number(name + "/n_dims", static_cast<uint32_t>(dims.size()));
  for (size_t i = 0; i < dims.size(); ++i) Number(absl::StrCat(name, "/dim", i), dims[i]);
  Number(name + "/type", type);
  Number(name + "/offset", data_bytes_);
  data_bytes_ += AlignUp(bytes);
}

const FieldMap::Field& FieldMap::Find(std::string_view name) const {
  const auto it = std::ranges::find(fields_, name, &Field::name);
  if (it == fields_.end()) {
    fprintf(stderr, "the corpus has no field '%.*s'\n", static_cast<int>(name.size()), name.data());
    abort();
  }
  return *it;
}

uint64_t FieldMap::NumberAt(const Field& field) const {
  uint64_t value = 0;
  std::memcpy(&value, bytes_.data() + field.offset, field.width);
  return value;
}

std::string FieldMap::With(std::string_view field, uint64_t value) const {
  const Field& place = Find(field);
  std::string out = bytes_;
  std::memcpy(out.data() + place.offset, &value, place.width);
  return out;
}

std::string FieldMap::WithText(std::string_view field, std::string_view text) const {
  const Field& place = Find(field);
  return std::string(bytes_).replace(place.offset, place.width, text.substr(0, place.width));
}

std::vector<CorpusFile> FieldMap::BreakEveryField() const {
  std::vector<CorpusFile> out;
  for (const Field& field : fields_) {
    if (field.text) {
      out.push_back({field.name + " = control characters",
                     WithText(field.name, std::string(field.width, '\x1b'))});
      continue;
    }
    const uint64_t value = NumberAt(field);
    const uint64_t top_bit = uint64_t{1} << (8 * field.width - 1);
    for (const uint64_t other :
         {uint64_t{0}, uint64_t{1}, value + 1, value - 1, 2 * value, ~uint64_t{0}, top_bit - 1,
          top_bit, uint64_t{0x5b}, uint64_t{0x12345678}, uint64_t{0xdeadbeef01234567}}) {
      out.push_back({absl::StrCat(field.name, " = ", other), With(field.name, other)});
    }
  }
  return out;
}

std::vector<CorpusFile> FieldMap::CutEverywhere() const {
  std::vector<CorpusFile> out;
  for (size_t n = 0; n < bytes_.size(); ++n) {
    out.push_back({absl::StrCat("first ", n, " bytes"), bytes_.substr(0, n)});
  }
  return out;
}

}  // namespace strata::gguf
