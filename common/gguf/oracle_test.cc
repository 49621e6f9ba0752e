// Our reader and writer against llama.cpp's: each reads what the other wrote, and both read the
// same from files made by third parties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/gguf/reader.h"
#include "common/gguf/test_model.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/shared_file.h"

namespace strata::gguf {
namespace {

using oracle::LlamaLibrary;

// The C interface of llama.cpp v0.5.0, as far as used here.
struct InitParams {
  bool no_alloc;
  void** context;
};
struct TensorContextParams {
  size_t bytes;
  void* buffer;
  bool no_alloc;
};

// One file as llama.cpp reads it.
class LlamaFile {
 public:
  LlamaFile(const LlamaLibrary& llama, const std::string& path)
      : llama_(llama),
        file_(llama.Function<void*(const char*, InitParams)>("gguf_init_from_file")(
            path.c_str(), {true, nullptr})) {}
  LlamaFile(const LlamaFile&) = delete;
  LlamaFile& operator=(const LlamaFile&) = delete;
  ~LlamaFile() {
    if (file_ != nullptr) llama_.Function<void(void*)>("gguf_free")(file_);
  }

  bool ok() const { return file_ != nullptr; }
  // Functions of the form f(file) and f(file, index).
  template <typename T>
  T Get(const char* function) const {
    return llama_.Function<T(void*)>(function)(file_);
  }
  template <typename T>
  T Get(const char* function, int64_t index) const {
    return llama_.Function<T(void*, int64_t)>(function)(file_, index);
  }
  std::string ArrayText(int64_t key, size_t i) const {
    return llama_.Function<const char*(void*, int64_t, size_t)>("gguf_get_arr_str")(file_, key, i);
  }

 private:
  const LlamaLibrary& llama_;
  void* file_;
};

void ExpectSameValue(const LlamaFile& file, int64_t key, const Value& value) {
  const auto raw = [&](const void* theirs) {
    return std::memcmp(theirs, value.payload().data(), value.payload().size()) == 0;
  };
  ASSERT_EQ(file.Get<int>("gguf_get_kv_type", key), static_cast<int>(value.type()));
  if (!value.is_array()) {
    if (value.type() == ValueType::kString) {
      // C strings end at the first zero byte, so compare up to there.
      EXPECT_EQ(value.AsString()->substr(0, value.AsString()->find('\0')),
                file.Get<const char*>("gguf_get_val_str", key));
    } else {
      EXPECT_TRUE(raw(file.Get<const void*>("gguf_get_val_data", key)));
    }
    return;
  }
  ASSERT_EQ(file.Get<int>("gguf_get_arr_type", key), static_cast<int>(value.element_type()));
  ASSERT_EQ(file.Get<size_t>("gguf_get_arr_n", key), value.size());
  if (value.element_type() != ValueType::kString) {
    EXPECT_TRUE(value.size() == 0 || raw(file.Get<const void*>("gguf_get_arr_data", key)));
    return;
  }
  const std::vector<std::string_view> texts = value.AsStrings().value();
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(texts[i].substr(0, texts[i].find('\0')), file.ArrayText(key, i)) << i;
  }
}

// Everything both readers say about a single file must be equal.
void ExpectSameReading(const LlamaLibrary& llama, const std::string& path) {
  SCOPED_TRACE(path);
  const LlamaFile file(llama, path);
  ASSERT_TRUE(file.ok());
  const auto model = Model::Open(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(file.Get<uint32_t>("gguf_get_version"), (*model)->version());
  EXPECT_EQ(file.Get<size_t>("gguf_get_alignment"), (*model)->alignment());
  ASSERT_EQ(file.Get<int64_t>("gguf_get_n_kv"), (*model)->metadata().size());
  int64_t key = 0;
  for (const Metadata::Entry& entry : (*model)->metadata()) {
    SCOPED_TRACE(entry.key);
    ASSERT_EQ(entry.key, file.Get<const char*>("gguf_get_key", key));
    ExpectSameValue(file, key++, entry.value);
  }
  ASSERT_EQ(file.Get<int64_t>("gguf_get_n_tensors"), (*model)->tensors().size());
  const auto data = file.Get<size_t>("gguf_get_data_offset");
  int64_t index = 0;
  for (const TensorInfo& tensor : (*model)->tensors()) {
    ASSERT_EQ(tensor.name, file.Get<const char*>("gguf_get_tensor_name", index));
    EXPECT_EQ(static_cast<int>(tensor.type), file.Get<int>("gguf_get_tensor_type", index));
    EXPECT_EQ(tensor.bytes, file.Get<size_t>("gguf_get_tensor_size", index));
    EXPECT_EQ(tensor.offset, data + file.Get<size_t>("gguf_get_tensor_offset", index));
    ++index;
  }
}

class GgufOracleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    llama_ = LlamaLibrary::Get();
    if (llama_ == nullptr) GTEST_SKIP() << LlamaLibrary::WhyMissing();
  }
  const LlamaLibrary* llama_ = nullptr;
  TestFolder folder_;
};

TEST_F(GgufOracleTest, LlamaReadsWhatWeWrite) {
  for (const uint64_t alignment : {32, 8, 4096}) {
    Writer writer = Writer::Create(folder_ / "m.gguf", alignment).value();
    writer.Set("general.architecture", "llama");
    writer.Set("u8", uint8_t{200});
    writer.Set("i8", int8_t{-3});
    writer.Set("u16", uint16_t{60000});
    writer.Set("i16", int16_t{-300});
    writer.Set("u32", uint32_t{4000000000});
    writer.Set("i32", int32_t{-70000});
    writer.Set("u64", uint64_t{1} << 63);
    writer.Set("i64", int64_t{-5000000000});
    writer.Set("f32", 1.5F);
    writer.Set("f64", 1e300);
    writer.Set("bool", true);
    writer.Set("i32s", std::vector<int32_t>{1, -2, 3});
    writer.Set("f64s", std::vector<double>{0.5, -0.25});
    writer.Set("bools", std::vector<bool>{true, false, true});
    writer.Set("texts", std::vector<std::string>{"a", "", "\xe2\x96\x81x"});
    writer.Set("none", std::vector<float>{});
    WriteTensors(writer, {{"a", TensorType::kF32, {3}},
                          {"b", TensorType::kQ4_K, {256, 3}},
                          {"c", TensorType::kQ8_0, {32, 3, 5}},
                          {"d", TensorType::kMXFP4, {64, 2, 2, 2}},
                          {"e", TensorType::kI8, {1}}});
    ExpectSameReading(*llama_, folder_ / "m.gguf");
  }
}

TEST_F(GgufOracleTest, WeReadWhatLlamaWrites) {
  const LlamaLibrary& llama = *llama_;
  void* file = llama.Function<void*()>("gguf_init_empty")();
  llama.Function<void(void*, const char*, const char*)>("gguf_set_val_str")(
      file, "general.architecture", "llama");
  llama.Function<void(void*, const char*, uint16_t)>("gguf_set_val_u16")(file, "u16", 65535);
  llama.Function<void(void*, const char*, float)>("gguf_set_val_f32")(file, "f32", -0.125F);
  llama.Function<void(void*, const char*, bool)>("gguf_set_val_bool")(file, "bool", true);
  llama.Function<void(void*, const char*, uint64_t)>("gguf_set_val_u64")(file, "u64", ~0ULL);
  const std::vector<int64_t> numbers = {-1, int64_t{1} << 40};
  llama.Function<void(void*, const char*, int, const void*, size_t)>("gguf_set_arr_data")(
      file, "i64s", static_cast<int>(ValueType::kI64), numbers.data(), numbers.size());
  std::vector<const char*> texts = {"x", "", "yy"};
  llama.Function<void(void*, const char*, const char**, size_t)>("gguf_set_arr_str")(
      file, "texts", texts.data(), texts.size());

  void* tensors =
      llama.Function<void*(TensorContextParams)>("ggml_init")({1 << 20, nullptr, false});
  const auto add = [&](const char* name, TensorType type, std::vector<int64_t> dims, int fill) {
    void* tensor = llama.Function<void*(void*, int, int, const int64_t*)>("ggml_new_tensor")(
        tensors, static_cast<int>(type), static_cast<int>(dims.size()), dims.data());
    llama.Function<void*(void*, const char*)>("ggml_set_name")(tensor, name);
    std::memset(llama.Function<void*(void*)>("ggml_get_data")(tensor), fill,
                llama.Function<size_t(void*)>("ggml_nbytes")(tensor));
    llama.Function<void(void*, void*)>("gguf_add_tensor")(file, tensor);
  };
  add("a", TensorType::kF16, {5}, 1);
  add("b", TensorType::kQ6_K, {512, 2, 3}, 2);
  const std::string path = folder_ / "theirs.gguf";
  ASSERT_TRUE(llama.Function<bool(void*, const char*, bool)>("gguf_write_to_file")(
      file, path.c_str(), false));
  llama.Function<void(void*)>("gguf_free")(file);
  llama.Function<void(void*)>("ggml_free")(tensors);

  ExpectSameReading(llama, path);
  const auto model = Model::Open(path).value();
  EXPECT_EQ(model->metadata().GetInts("i64s").value(), numbers);
  EXPECT_EQ(model->metadata().GetUint("u64").value(), ~0ULL);
  const TensorInfo* b = model->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dims, (std::array<uint64_t, 4>{512, 2, 3, 1}));
  EXPECT_EQ(b->n_dims, 3);
  EXPECT_TRUE(std::ranges::all_of(model->Data(*b), [](std::byte x) { return x == std::byte{2}; }));
}

TEST_F(GgufOracleTest, BothReadTheSameFromOtherFiles) {
  std::vector<std::string> paths;
  for (const char* folder : {"fixtures", "models"}) {
    std::error_code error;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(oracle::SharedFile(folder), error)) {
      if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
    }
  }
  if (paths.empty()) {
    GTEST_SKIP() << "no model files under " << oracle::SharedFile("") << " (STRATA_SHARED)";
  }
  for (const std::string& path : paths) ExpectSameReading(*llama_, path);
}

}  // namespace
}  // namespace strata::gguf
