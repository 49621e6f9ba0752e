#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "common/gguf/test_model.h"
#include "common/pack/pack_file.h"
#include "common/pack/write_pack.h"
#include "common/quant/weight_layout.h"

namespace strata::pack {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A model with two layers of experts, the second with fused gate and up, every byte random.
class PackTest : public testing::Test {
 protected:
  PackTest() {
    auto writer = gguf::Writer::Create(folder_ / "m.gguf").value();
    writer.Set("general.architecture", std::string("qwen3moe"));
    const std::vector<gguf::TestTensor> tensors = {
        {"token_embd.weight", TensorType::kF32, {64, 16}},
        {"blk.0.ffn_gate_exps.weight", TensorType::kQ8_0, {64, 32, 5}},
        {"blk.0.ffn_up_exps.weight", TensorType::kQ4_0, {64, 32, 5}},
        {"blk.0.ffn_down_exps.weight", TensorType::kF16, {32, 64, 5}},
        {"blk.3.ffn_gate_up_exps.weight", TensorType::kF16, {64, 64, 3}},
        {"blk.3.ffn_down_exps.weight", TensorType::kQ8_0, {32, 64, 3}},
    };
    for (const auto& tensor : tensors) {
      writer.DeclareTensor(tensor.name, tensor.type, tensor.dims);
    }
    std::mt19937_64 random(4);
    for (const auto& tensor : tensors) {
      uint64_t size = RowBytes(tensor.type, tensor.dims[0]).value();
      for (size_t d = 1; d < tensor.dims.size(); ++d) size *= tensor.dims[d];
      std::vector<std::byte> bytes(size);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      EXPECT_TRUE(writer.WriteTensor(tensor.name, bytes).ok());
    }
    EXPECT_TRUE(writer.Finish().ok());
    model_ = gguf::Model::Open(folder_ / "m.gguf").value();
  }

  std::string Pack() {
    const std::string path = folder_ / "m.pack";
    const auto written = WritePack(*model_, path, {});
    EXPECT_TRUE(written.ok()) << written.status();
    return path;
  }
  std::vector<std::byte> HeaderOf(const std::string& path) const {
    const std::string text = gguf::ReadFileText(path);
    const PackHeader header = ReadHeader(path).value();
    std::vector<std::byte> bytes(header.header_bytes);
    std::memcpy(bytes.data(), text.data(), bytes.size());
    return bytes;
  }

  const TestFolder folder_;
  std::unique_ptr<gguf::Model> model_;
};

TEST_F(PackTest, HoldsEveryExpertOfTheModel) {
  const std::string path = Pack();
  const auto header = ReadHeader(path);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->fingerprint, model_->Fingerprint());
  const std::string file = gguf::ReadFileText(path);
  const gguf::ExpertGeometry geometry = gguf::ReadExpertGeometry(*model_).value();
  ASSERT_EQ(header->layers.size(), 2u);
  for (size_t l = 0; l < 2; ++l) {
    const PackLayer& layer = header->layers[l];
    EXPECT_EQ(layer.layer, l == 0 ? 0u : 3u);
    EXPECT_EQ(layer.offset % 4096, 0u);
    EXPECT_EQ(layer.stride % 4096, 0u);
    ASSERT_EQ(layer.parts.size(), geometry.layers[l].parts.size());
    for (uint32_t e = 0; e < layer.experts; ++e) {
      std::vector<std::span<const std::byte>> parts;
      for (size_t p = 0; p < layer.parts.size(); ++p) {
        const auto want = model_->Data(*model_->Get(geometry.layers[l].parts[p].tensor).value())
                              .subspan(e * layer.parts[p].bytes, layer.parts[p].bytes);
        const char* got = file.data() + layer.offset + e * layer.stride + layer.parts[p].start;
        EXPECT_EQ(std::memcmp(got, want.data(), want.size()), 0);
        parts.push_back(want);
      }
      EXPECT_EQ(layer.checksums[e], Checksum(parts));
    }
  }
}

TEST_F(PackTest, InterleavesRowsOfTypesThatGainByIt) {
  const std::string path = folder_ / "m.pack";
  WriteOptions options;
  options.layout = quant::WeightLayout::kRows8;
  ASSERT_TRUE(WritePack(*model_, path, options).ok());
  const PackHeader header = ReadHeader(path).value();
  const std::string file = gguf::ReadFileText(path);
  const PackLayer& layer = header.layers[0];
  EXPECT_EQ(layer.parts[0].layout, quant::WeightLayout::kGguf);  // Q8_0
  ASSERT_EQ(layer.parts[1].layout, quant::WeightLayout::kRows8);
  EXPECT_EQ(layer.parts[2].layout, quant::WeightLayout::kGguf);  // F16
  const size_t bytes = layer.parts[1].bytes;
  const auto up = model_->Data(*model_->Get("blk.0.ffn_up_exps.weight").value());
  for (uint32_t e = 0; e < layer.experts; ++e) {
    const char* got = file.data() + layer.offset + e * layer.stride + layer.parts[1].start;
    std::vector<std::byte> rows(bytes);
    quant::DeinterleaveRows(TensorType::kQ4_0, 32, bytes / 32,
                            reinterpret_cast<const std::byte*>(got), rows.data());
    EXPECT_TRUE(std::ranges::equal(rows, up.subspan(e * bytes, bytes)));
    EXPECT_NE(std::memcmp(got, rows.data(), bytes), 0);
  }
}

TEST_F(PackTest, IsNotOverwrittenSilentlyAndLeavesNothingHalfDone) {
  const std::string path = folder_.Save("m.pack", "precious");
  const auto refused = WritePack(*model_, path, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(refused.status()), HasSubstr(path));
  EXPECT_EQ(gguf::ReadFileText(path), "precious");
  uint64_t last = 0;
  WriteOptions options;
  options.overwrite = true;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
  };
  const auto written = WritePack(*model_, path, options);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(last, written->file_bytes);
  EXPECT_EQ(ReadHeader(path).value(), *written);
  EXPECT_FALSE(WritePack(*model_, folder_ / "none/m.pack", {}).ok());
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ / "")) {
    ++files;
  }
  EXPECT_EQ(files, 2);  // model and pack, no temporary file
}

TEST_F(PackTest, ErrorsSayWhatIsWrong) {
  const std::string path = Pack();
  const std::string good = gguf::ReadFileText(path);
  const auto message = [&](const std::string& content) {
    return Message(ReadHeader(folder_.Save("x.pack", content)).status());
  };
  EXPECT_THAT(message("GGUF and so on"), HasSubstr("not a pack file"));
  EXPECT_THAT(message(""), HasSubstr("not a pack file"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("instead of"));
  EXPECT_THAT(message(good.substr(0, 40)), HasSubstr("ends inside"));
  std::string other = good;
  other[8] = 9;
  EXPECT_THAT(message(other), HasSubstr("version 9"));
  other = good;
  std::swap(other[12], other[15]);
  EXPECT_THAT(message(other), HasSubstr("byte order"));
  other = good;
  other[100] ^= 1;
  EXPECT_THAT(message(other), HasSubstr("checksum differs"));
  EXPECT_THAT(Message(ReadHeader(folder_ / "none").status()), HasSubstr("none"));
}

TEST_F(PackTest, AnUnknownLayoutIsRefused) {
  PackHeader header = ReadHeader(Pack()).value();
  header.layers[0].parts[1].layout = quant::WeightLayout{7};
  const auto parsed = ParseHeader(Serialize(header), header.file_bytes);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(parsed.status()), HasSubstr("layout 7"));
}

// Any flipped bit is an error; and with the checksum set right again, any header is refused or
// describes experts inside the file.
TEST_F(PackTest, SurvivesAnyDamage) {
  const std::string path = Pack();
  const std::vector<std::byte> good = HeaderOf(path);
  const uint64_t file_bytes = std::filesystem::file_size(path);
  ASSERT_TRUE(ParseHeader(good, file_bytes).ok());
  std::mt19937_64 random(8);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = good;
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 << random() % 8);
    EXPECT_FALSE(ParseHeader(bytes, file_bytes).ok());
  }
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = good;
    for (int i = 0; i < 2; ++i) {
      bytes[32 + random() % 300] = static_cast<std::byte>(random() % 3 == 0 ? 0xff : random());
    }
    std::memset(bytes.data() + 56, 0, 8);
    const std::span<const std::byte> whole[] = {bytes};
    const uint64_t checksum = Checksum(whole);
    std::memcpy(bytes.data() + 56, &checksum, 8);
    const auto header = ParseHeader(bytes, file_bytes);
    if (!header.ok()) continue;
    ++accepted;
    for (const PackLayer& layer : header->layers) {
      ASSERT_LE(layer.offset + layer.stride * layer.experts, file_bytes);
      ASSERT_EQ(layer.checksums.size(), layer.experts);
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace strata::pack
