#include "common/gguf/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/gguf/reader.h"
#include "common/gguf/test_model.h"

namespace strata::gguf {
namespace {

using ::testing::HasSubstr;

class WriterTest : public ::testing::Test {
 protected:
  Writer Create() { return Writer::Create(folder_ / "m.gguf").value(); }
  size_t FilesInFolder() const {
    const std::filesystem::directory_iterator all(folder_ / "");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  static std::string Message(const absl::Status& status) { return std::string(status.message()); }

  TestFolder folder_;
  const std::vector<std::byte> row_ = std::vector<std::byte>(128);  // 32 values of F32
};

TEST_F(WriterTest, LeavesNothingBehindUnlessFinished) {
  {
    Writer writer = Create();
    writer.DeclareTensor("a", TensorType::kF32, {32});
    ASSERT_TRUE(writer.WriteTensor("a", row_).ok());
    EXPECT_EQ(FilesInFolder(), 1);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "m.gguf"));
  }
  EXPECT_EQ(FilesInFolder(), 0);
}

TEST_F(WriterTest, ReplacesAFileOnlyWhenFinished) {
  folder_.Save("m.gguf", "old");
  Writer writer = Create();
  writer.Set("k", uint8_t{1});
  EXPECT_EQ(ReadFileText(folder_ / "m.gguf"), "old");
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(FilesInFolder(), 1);
  EXPECT_TRUE(Model::Open(folder_ / "m.gguf").ok());
}

TEST_F(WriterTest, AcceptsDataInPieces) {
  Writer writer = Create();
  writer.DeclareTensor("a", TensorType::kF32, {8, 4});
  writer.DeclareTensor("b", TensorType::kI8, {5});
  writer.DeclareTensor("c", TensorType::kI8, {1});
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(writer.WriteTensor("a", std::vector<std::byte>(32, std::byte(i))).ok());
  }
  ASSERT_TRUE(writer.WriteTensor("b", std::vector<std::byte>(5, std::byte{9})).ok());
  ASSERT_TRUE(writer.WriteTensor("c", std::vector<std::byte>(1, std::byte{7})).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto model = Model::Open(folder_ / "m.gguf").value();
  EXPECT_EQ(model->Data(*model->Find("a"))[127], std::byte{3});
  EXPECT_EQ(model->Data(*model->Find("b"))[4], std::byte{9});
  EXPECT_EQ(model->Data(*model->Find("c"))[0], std::byte{7});
}

TEST_F(WriterTest, WritesMoreThanItsBuffer) {
  Writer writer = Create();
  constexpr uint64_t kBytes = 5'000'011;
  writer.DeclareTensor("a", TensorType::kI8, {kBytes});
  std::vector<std::byte> bytes(kBytes);
  for (uint64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 2654435761U >> 24);
  for (size_t at = 0; at < kBytes;) {
    const size_t n = std::min<size_t>(700'001, kBytes - at);
    ASSERT_TRUE(writer.WriteTensor("a", std::span(bytes).subspan(at, n)).ok());
    at += n;
  }
  ASSERT_TRUE(writer.Finish().ok());
  const auto model = Model::Open(folder_ / "m.gguf").value();
  EXPECT_TRUE(std::ranges::equal(model->Data(model->tensors()[0]), bytes));
}

TEST_F(WriterTest, CopiesValuesOfAnotherFile) {
  Writer first = Writer::Create(folder_ / "a.gguf").value();
  first.Set("text", "abc");
  first.Set("texts", std::vector<std::string>{"x", "yy"});
  first.Set("f64s", std::vector<double>{1.5, 2.5});
  first.Set("flag", true);
  ASSERT_TRUE(first.Finish().ok());
  const auto model = Model::Open(folder_ / "a.gguf").value();
  Writer second = Writer::Create(folder_ / "b.gguf").value();
  for (const Metadata::Entry& entry : model->metadata()) second.Set(entry.key, entry.value);
  ASSERT_TRUE(second.Finish().ok());
  EXPECT_EQ(ReadFileText(folder_ / "a.gguf"), ReadFileText(folder_ / "b.gguf"));
}

TEST_F(WriterTest, ReportsMisuse) {
  {
    Writer writer = Create();
    writer.Set("k", uint8_t{1});
    writer.Set("k", uint8_t{2});
    EXPECT_THAT(Message(writer.Finish()), HasSubstr("key 'k' is given twice"));
  }
  {
    Writer writer = Create();
    writer.DeclareTensor("t", TensorType::kF32, {32});
    writer.DeclareTensor("t", TensorType::kF32, {32});
    EXPECT_THAT(Message(writer.Finish()), HasSubstr("tensor 't' is given twice"));
  }
  {
    Writer writer = Create();
    writer.DeclareTensor("t", TensorType::kQ4_K, {32});
    EXPECT_THAT(Message(writer.Finish()), HasSubstr("not whole blocks"));
  }
  {
    Writer writer = Create();
    writer.DeclareTensor("t", TensorType::kF32, {uint64_t{1} << 40, uint64_t{1} << 40});
    EXPECT_THAT(Message(writer.Finish()), HasSubstr("too large"));
  }
  {
    Writer writer = Create();
    writer.DeclareTensor("t", TensorType::kF32, {32});
    EXPECT_THAT(Message(writer.Finish()), HasSubstr("'t' are missing"));
  }
  {
    Writer writer = Create();
    writer.DeclareTensor("t", TensorType::kF32, {32});
    writer.DeclareTensor("u", TensorType::kF32, {32});
    EXPECT_THAT(Message(writer.WriteTensor("u", row_)), HasSubstr("'t' was expected"));
    EXPECT_FALSE(writer.Finish().ok());
  }
  {
    Writer writer = Create();
    writer.DeclareTensor("t", TensorType::kF32, {16});
    EXPECT_THAT(Message(writer.WriteTensor("t", row_)), HasSubstr("has 64 bytes, got 128"));
  }
  EXPECT_FALSE(Writer::Create(folder_ / "x.gguf", 48).ok());
  EXPECT_FALSE(Writer::Create(folder_ / "absent/x.gguf").ok());
}

}  // namespace
}  // namespace strata::gguf
