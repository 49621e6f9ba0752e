#include "common/gguf/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/gguf/printable.h"
#include "common/gguf/split.h"
#include "common/gguf/test_model.h"
#include "common/gguf/writer.h"

namespace strata::gguf {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ErrorOf(const std::string& path) {
  const auto model = Model::Open(path);
  return model.ok() ? "no error" : std::string(model.status().message());
}

std::string HeaderWith(uint32_t version) {
  std::string head = "GGUF";
  head.append(reinterpret_cast<const char*>(&version), sizeof(version));
  return head + std::string(16, '\0');
}

class ReaderTest : public ::testing::Test {
 protected:
  // A file with the tensors `names`, each 2 x 32 values of F32; `shards` > 1 adds the split keys.
  std::string Write(const std::string& name, const std::vector<std::string>& names,
                    uint16_t shard = 0, uint16_t shards = 1, int32_t all_tensors = 0) const {
    Writer writer = Writer::Create(folder_ / name).value();
    if (shard == 0) writer.Set("general.architecture", "test");
    if (shards > 1) {
      writer.Set("split.no", shard);
      writer.Set("split.count", shards);
      writer.Set("split.tensors.count", all_tensors);
    }
    std::vector<TestTensor> tensors;
    tensors.reserve(names.size());
    for (const std::string& tensor : names) tensors.push_back({tensor, TensorType::kF32, {32, 2}});
    WriteTensors(writer, tensors);
    return folder_ / name;
  }
  std::vector<std::string> WriteThreeShards() const {
    return {Write("m-00001-of-00003.gguf", {}, 0, 3, 3),
            Write("m-00002-of-00003.gguf", {"a", "b"}, 1, 3, 3),
            Write("m-00003-of-00003.gguf", {"c"}, 2, 3, 3)};
  }

  TestFolder folder_;
};

TEST_F(ReaderTest, ReadsBackEveryTypeOfValue) {
  Writer writer = Writer::Create(folder_ / "m.gguf", 64).value();
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

  const auto model = Model::Open(folder_ / "m.gguf");
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
  EXPECT_EQ(m.GetFloat("i32").value(), -70000.0);
  EXPECT_TRUE(m.GetBool("yes").value());
  EXPECT_EQ(m.GetString("text").value(), "caf\xc3\xa9");
  EXPECT_THAT(m.GetInts("i32s").value(), ElementsAre(1, -2, 3));
  EXPECT_THAT(m.GetUints("u16s").value(), ElementsAre(7, 8));
  EXPECT_THAT(m.GetFloats("f32s").value(), ElementsAre(0.5, -0.25));
  EXPECT_THAT(m.GetBools("bools").value(), ElementsAre(true, false));
  EXPECT_THAT(m.GetStrings("texts").value(), ElementsAre("a", "", "ccc"));
  EXPECT_TRUE(m.GetStrings("none").value().empty());
  std::vector<std::string> order;
  for (const Metadata::Entry& entry : m) order.emplace_back(entry.key);
  EXPECT_THAT(order, ElementsAre("general.alignment", "u8", "i8", "u16", "i16", "u32", "i32", "u64",
                                 "i64", "f32", "f64", "yes", "text", "i32s", "u16s", "f32s",
                                 "bools", "texts", "none"));
}

TEST_F(ReaderTest, RefusesValuesOfAnotherType) {
  Writer writer = Writer::Create(folder_ / "m.gguf").value();
  writer.Set("negative", int8_t{-3});
  writer.Set("huge", std::numeric_limits<uint64_t>::max());
  writer.Set("text", "seven");
  writer.Set("texts", std::vector<std::string>{"a"});
  writer.Set("mixed", std::vector<int32_t>{1, -2});
  writer.Set("scalar", uint8_t{5});
  writer.Set("pair", std::vector<uint16_t>{7, 8});
  ASSERT_TRUE(writer.Finish().ok());
  const auto model = Model::Open(folder_ / "m.gguf");
  ASSERT_TRUE(model.ok()) << model.status();
  const Metadata& m = (*model)->metadata();

  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(m.GetUint("negative").status().code(), invalid);
  EXPECT_EQ(m.GetInt("huge").status().code(), invalid);
  EXPECT_EQ(m.GetUints("mixed").status().code(), invalid);
  EXPECT_EQ(m.GetUint("pair").status().code(), invalid);
  EXPECT_EQ(m.GetUints("scalar").status().code(), invalid);
  EXPECT_EQ(m.GetString("texts").status().code(), invalid);
  EXPECT_EQ(m.GetStrings("text").status().code(), invalid);
  EXPECT_EQ(m.GetBool("scalar").status().code(), invalid);
  EXPECT_THAT(std::string(m.GetUint("text", 7).status().message()),
              AllOf(HasSubstr("'text'"), HasSubstr("of type string"), HasSubstr("integer")));

  EXPECT_EQ(m.GetUint("absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(m.GetUint("absent", 7).value(), 7);
  EXPECT_THAT(m.GetUintPerLayer("scalar", 3).value(), ElementsAre(5, 5, 5));
  EXPECT_THAT(m.GetUintPerLayer("pair", 2).value(), ElementsAre(7, 8));
  EXPECT_EQ(m.GetUintPerLayer("pair", 3).status().code(), invalid);
}

TEST_F(ReaderTest, ReadsBackTensors) {
  const auto model = Model::Open(Write("m.gguf", {"a", "b"}));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tensors().size(), 2);
  const TensorInfo* tensor = (*model)->Find("b");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->rows(), 2);
  EXPECT_EQ(tensor->cols(), 32);
  const std::span<const std::byte> data = (*model)->Data(*tensor);
  EXPECT_THAT(std::vector<std::byte>(data.begin(), data.end()),
              ::testing::AllOf(::testing::SizeIs(256), ::testing::Each(std::byte{1})));
  EXPECT_EQ((*model)->Find("c"), nullptr);
  EXPECT_THAT(std::string((*model)->Get("c").status().message()),
              AllOf(HasSubstr("no tensor 'c'"), HasSubstr("complete")));
}

TEST_F(ReaderTest, SaysWhatAFileIsInstead) {
  const auto error = [&](const std::string& content) {
    return ErrorOf(folder_.Save("x.gguf", content));
  };
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("\n <!DOCTYPE html><html>"), HasSubstr("web page"));
  EXPECT_THAT(error("<HTML>"), HasSubstr("web page"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\noid sha256:0"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(error("{\"error\":\"Repository not found\"}"), HasSubstr("JSON"));
  EXPECT_THAT(error(std::string("\x20\0\0\0\0\0\0\0{\"a\":{}}", 16) + std::string(32, ' ')),
              HasSubstr("safetensors"));
  EXPECT_THAT(error("PK\x03\x04zip"), HasSubstr("PyTorch"));
  EXPECT_THAT(error("\x1f\x8b\x08"), HasSubstr("gzip"));
  EXPECT_THAT(error("tjgg"), HasSubstr("2023"));
  EXPECT_THAT(error(std::string(4096, '\0')), HasSubstr("first bytes are zero"));
  EXPECT_THAT(error("\x01\x02text"), AllOf(HasSubstr("01 02 74"), HasSubstr("instead of 'GGUF'")));
  EXPECT_THAT(error("GG"), HasSubstr("truncated"));
  EXPECT_THAT(ErrorOf(folder_ / "absent.gguf"), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf(folder_ / ""), HasSubstr("not a regular file"));
}

TEST_F(ReaderTest, NamesUnsupportedVersions) {
  const auto error = [&](uint32_t version) {
    return ErrorOf(folder_.Save("v.gguf", HeaderWith(version)));
  };
  EXPECT_EQ(error(2), "no error");
  EXPECT_EQ(error(3), "no error");
  EXPECT_THAT(error(1), HasSubstr("version 1"));
  EXPECT_THAT(error(4), HasSubstr("known versions are 2 and 3"));
  EXPECT_THAT(error(0x03000000), HasSubstr("big-endian"));
}

TEST_F(ReaderTest, SaysHowMuchOfATruncatedFileIsMissing) {
  const std::string whole = ReadFileText(Write("m.gguf", {"a", "b", "c"}));
  const std::string path = folder_.Save("cut.gguf", whole.substr(0, whole.size() - 300));
  EXPECT_THAT(ErrorOf(path), AllOf(HasSubstr("300 bytes are missing"), HasSubstr("2 of 3 tensors"),
                                   HasSubstr("'b'")));
}

TEST_F(ReaderTest, NamesAnUnknownTensorType) {
  std::string content = ReadFileText(Write("m.gguf", {"weight"}));
  const size_t type = content.find("weight") + 6 + 4 + 2 * 8;  // after n_dims and two dimensions
  content[type] = 99;
  EXPECT_THAT(ErrorOf(folder_.Save("t.gguf", content)),
              AllOf(HasSubstr("tensor 'weight'"), HasSubstr("unknown tensor type 99"),
                    HasSubstr("q4_K (12)"), HasSubstr("mxfp4 (39)")));
}

TEST_F(ReaderTest, EscapesNamesInMessages) {
  std::string content = ReadFileText(Write("m.gguf", {"weight"}));
  const size_t name = content.find("weight");
  content[name] = '\x1b';
  content[name + 6 + 4 + 2 * 8] = 99;
  EXPECT_THAT(ErrorOf(folder_.Save("t.gguf", content)),
              AllOf(HasSubstr("\\x1beight"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(Printable("a\nb\xc2\x9b"
                      "1\xc3\xa9"),
            "a\\x0ab\xc2\\x9b"
            "1\xc3\xa9");
  EXPECT_EQ(Printable("\xc3\xa9\xc3\xa9", 3), "\xc3\xa9...");
}

TEST_F(ReaderTest, OpensASplitModelFromAnyShard) {
  for (const std::string& path : WriteThreeShards()) {
    const auto model = Model::Open(path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->files().size(), 3);
    EXPECT_EQ((*model)->metadata().GetString("general.architecture").value(), "test");
    ASSERT_EQ((*model)->tensors().size(), 3);
    EXPECT_EQ((*model)->Find("b")->file, 1);
    EXPECT_EQ((*model)->Data(*(*model)->Find("b"))[0], std::byte{1});
    EXPECT_EQ((*model)->Find("c")->file, 2);
    EXPECT_EQ((*model)->Data(*(*model)->Find("c"))[0], std::byte{0});
  }
}

TEST_F(ReaderTest, ListsAllMissingShards) {
  const std::vector<std::string> paths = WriteThreeShards();
  std::filesystem::remove(paths[0]);
  std::filesystem::remove(paths[2]);
  EXPECT_THAT(ErrorOf(paths[1]),
              AllOf(HasSubstr("2 of 3 shards"), HasSubstr("shard 1, which holds"),
                    HasSubstr(paths[0]), HasSubstr(paths[2])));
}

TEST_F(ReaderTest, RecognizesShardsJoinedWithCat) {
  std::string joined;
  for (const std::string& path : WriteThreeShards()) joined += ReadFileText(path);
  EXPECT_THAT(ErrorOf(folder_.Save("joined.gguf", joined)), HasSubstr("cannot be joined with cat"));
}

TEST_F(ReaderTest, RefusesMixedUpShards) {
  const std::vector<std::string> paths = WriteThreeShards();
  std::filesystem::copy(paths[1], folder_ / "second.gguf");
  EXPECT_THAT(ErrorOf(folder_ / "second.gguf"),
              AllOf(HasSubstr("shard 2 of 3"), HasSubstr("NAME-00002-of-00003.gguf")));

  Write("m-00003-of-00003.gguf", {"c", "d"}, 2, 3, 4);
  EXPECT_THAT(ErrorOf(paths[0]), HasSubstr("different models"));
  Write("m-00003-of-00003.gguf", {"a"}, 2, 3, 3);
  EXPECT_THAT(ErrorOf(paths[0]), HasSubstr("'a' occurs twice"));
  std::filesystem::rename(paths[1], paths[2]);
  std::filesystem::copy(paths[2], paths[1]);
  EXPECT_THAT(ErrorOf(paths[0]), HasSubstr("its split.no says shard 2"));
}

TEST(SplitTest, ReadsShardNames) {
  const auto name = ParseShardName("/models/a-b-00002-of-00010.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/models/a-b");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 10);
  EXPECT_EQ(ShardPath(name->prefix, 10, 10), "/models/a-b-00010-of-00010.gguf");
  for (const char* other :
       {"a.gguf", "a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-1-of-2.gguf",
        "a-00001-of-00002.bin", "a-00001-of-99999.gguf", "00001-of-00002.gguf", "-of-00002.gguf"}) {
    EXPECT_FALSE(ParseShardName(other)) << other;
  }
}

TEST_F(ReaderTest, FingerprintTellsModelsApart) {
  const std::string path = Write("m.gguf", {"a", "b"});
  std::string content = ReadFileText(path);
  const auto fingerprint = [&](const std::string& file) {
    return Model::Open(file).value()->Fingerprint();
  };
  const auto original = fingerprint(path);
  EXPECT_EQ(fingerprint(folder_.Save("copy.gguf", content)), original);
  content.back() ^= 1;
  EXPECT_NE(fingerprint(folder_.Save("data.gguf", content)), original);
  content.back() ^= 1;
  content[content.find("test")] = 'b';
  EXPECT_NE(fingerprint(folder_.Save("key.gguf", content)), original);
}

TEST_F(ReaderTest, NoticesThatAFileChanged) {
  const std::string path = Write("m.gguf", {"a"});
  const auto model = Model::Open(path);
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE((*model)->CheckUnchanged().ok());
  std::filesystem::remove(path);
  Write("m.gguf", {"a"});
  EXPECT_EQ((*model)->CheckUnchanged().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReaderTest, TakesAShardsNameForAWholeModelsIfItsKeysSaySo) {
  const auto model = Model::Open(Write("m-00001-of-00002.gguf", {"a"}));
  EXPECT_TRUE(model.ok()) << model.status();
}

}  // namespace
}  // namespace strata::gguf
