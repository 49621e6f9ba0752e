#include "common/gguf/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/gguf/writer.h"

namespace strata::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReaderTest : public ::testing::Test {
 protected:
  ReaderTest() {
    std::string pattern = ::testing::TempDir() + "gguf.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ReaderTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Save(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  static std::string Load(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A file with the tensors `names`, each 2 x 32 values of F32 holding its own number.
  std::string Write(const std::string& name, const std::vector<std::string>& names,
                    uint32_t shard = 0, uint32_t shards = 1, uint32_t all = 0) const {
    Writer writer = Writer::Create(Path(name)).value();
    if (shard == 0) writer.Set("general.architecture", std::string("test"));
    if (shards > 1) {
      writer.Set("split.no", static_cast<uint16_t>(shard));
      writer.Set("split.count", static_cast<uint16_t>(shards));
      writer.Set("split.tensors.count", static_cast<int32_t>(all));
    }
    for (const std::string& tensor : names) {
      writer.DeclareTensor(tensor, TensorType::kF32, {32, 2});
    }
    for (const std::string& tensor : names) {
      const std::vector<float> values(64, static_cast<float>(tensor.size()));
      EXPECT_TRUE(writer.WriteTensor(tensor, std::as_bytes(std::span(values))).ok());
    }
    EXPECT_TRUE(writer.Finish().ok());
    return Path(name);
  }
  static std::string Error(const std::string& path) {
    const auto model = Model::Open(path);
    return model.ok() ? "no error" : std::string(S(model.status().message()));
  }

  std::string folder_;
};

TEST_F(ReaderTest, ReadsBackEveryTypeOfValue) {
  Writer writer = Writer::Create(Path("m.gguf"), 64).value();
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
  writer.Set("yes", true);
  writer.Set("text", "caf\xc3\xa9");
  writer.Set("i32s", std::vector<int32_t>{1, -2, 3});
  writer.Set("u16s", std::vector<uint16_t>{7, 8});
  writer.Set("f32s", std::vector<float>{0.5F, -0.25F});
  writer.Set("bools", std::vector<bool>{true, false});
  writer.Set("texts", std::vector<std::string>{"a", "", "ccc"});
  writer.Set("none", std::vector<std::string>{});
  ASSERT_TRUE(writer.Finish().ok());

  const auto model = Model::Open(Path("m.gguf"));
  ASSERT_TRUE(model.ok()) << model.status();
  const Metadata& m = (*model)->metadata();
  EXPECT_EQ((*model)->alignment(), 64);
  EXPECT_EQ(m.GetUint("u8").value(), 200);
  EXPECT_EQ(m.GetInt("i8").value(), -3);
  EXPECT_EQ(m.GetUint("u16").value(), 60000);
  EXPECT_EQ(m.GetInt("i16").value(), -300);
  EXPECT_EQ(m.GetUint("u32").value(), 4000000000);
  EXPECT_EQ(m.GetInt("i32").value(), -70000);
  EXPECT_EQ(m.GetUint("u64").value(), uint64_t{1} << 63);
  EXPECT_EQ(m.GetInt("i64").value(), -5000000000);
  EXPECT_EQ(m.GetFloat("f32").value(), 1.5);
  EXPECT_EQ(m.GetFloat("f64").value(), 1e300);
  EXPECT_TRUE(m.GetBool("yes").value());
  EXPECT_EQ(m.GetString("text").value(), "caf\xc3\xa9");
  EXPECT_THAT(m.GetInts("i32s").value(), ElementsAre(1, -2, 3));
  EXPECT_THAT(m.GetUints("u16s").value(), ElementsAre(7, 8));
  EXPECT_THAT(m.GetFloats("f32s").value(), ElementsAre(0.5, -0.25));
  EXPECT_THAT(m.GetBools("bools").value(), ElementsAre(true, false));
  EXPECT_THAT(m.GetStrings("texts").value(), ElementsAre("a", "", "ccc"));
  EXPECT_TRUE(m.GetStrings("none").value().empty());
  EXPECT_EQ(m.begin()->key, "general.alignment");

  EXPECT_EQ(m.GetUint("i8").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(m.GetUints("i32s").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(m.GetInt("u64").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(m.GetString("texts").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(m.GetUint("text", 7).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(m.GetUint("absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(m.GetUint("absent", 7).value(), 7);
  EXPECT_THAT(m.GetUintPerLayer("u8", 3).value(), ElementsAre(200, 200, 200));
  EXPECT_THAT(m.GetUintPerLayer("u16s", 2).value(), ElementsAre(7, 8));
  EXPECT_FALSE(m.GetUintPerLayer("u16s", 3).ok());
}

TEST_F(ReaderTest, ReadsBackTensors) {
  const auto model = Model::Open(Write("m.gguf", {"a", "bb"}));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tensors().size(), 2);
  const TensorInfo* tensor = (*model)->Find("bb");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->rows(), 2);
  EXPECT_EQ(tensor->cols(), 32);
  EXPECT_EQ(tensor->bytes, 256);
  float value = 0;
  std::memcpy(&value, (*model)->Data(*tensor).data(), sizeof(value));
  EXPECT_EQ(value, 2);
  EXPECT_EQ((*model)->Find("c"), nullptr);
  EXPECT_THAT(std::string(S((*model)->Get("c").status().message())), HasSubstr("no tensor 'c'"));
}

}  // namespace
}  // namespace strata::gguf
