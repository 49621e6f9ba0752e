#include "common/gguf/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/gguf/expert_geometry.h"
#include "common/gguf/model_cost.h"
#include "common/gguf/reader.h"
#include "common/gguf/test_model.h"

namespace strata::gguf {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr auto kF32 = TensorType::kF32;
constexpr auto kF16 = TensorType::kF16;
constexpr auto kQ8 = TensorType::kQ8_0;

// Two layers of 4 experts (2 used), hidden size 64, expert width 32, one K/V head of 16; the second
// layer is a draft layer if `draft`. Gate and up may be fused, and `spoil` replaces a tensor.
class ModelFile {
 public:
  bool fused = false;
  bool draft = false;
  bool tied = false;
  std::vector<TestTensor> spoil;

  std::unique_ptr<Model> Open() const {
    Writer writer = Writer::Create(folder_ / "m.gguf").value();
    writer.Set("general.architecture", "testmoe");
    writer.Set("general.name", "evil \x1b[2J name");
    writer.Set("testmoe.block_count", uint32_t{2});
    writer.Set("testmoe.embedding_length", uint32_t{64});
    writer.Set("testmoe.attention.head_count", uint32_t{4});
    writer.Set("testmoe.attention.head_count_kv", uint32_t{1});
    writer.Set("testmoe.expert_used_count", uint32_t{2});
    if (draft) writer.Set("testmoe.nextn_predict_layers", uint32_t{1});
    writer.Set("long", std::vector<uint32_t>(1000, 7));
    std::vector<TestTensor> tensors = {{"token_embd.weight", kF16, {64, 100}}};
    if (!tied) tensors.push_back({"output.weight", kF16, {64, 100}});
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      tensors.push_back({layer + "attn_k.weight", kF16, {64, 16}});
      if (fused) {
        tensors.push_back({layer + "ffn_gate_up_exps.weight", kQ8, {64, 64, 4}});
      } else {
        tensors.push_back({layer + "ffn_gate_exps.weight", kQ8, {64, 32, 4}});
        tensors.push_back({layer + "ffn_up_exps.weight", kQ8, {64, 32, 4}});
      }
      tensors.push_back({layer + "ffn_down_exps.weight", kF32, {32, 64, 4}});
    }
    for (TestTensor& tensor : tensors) {
      for (const TestTensor& other : spoil) {
        if (other.name == tensor.name) tensor = other;
      }
    }
    WriteTensors(writer, tensors);
    return Model::Open(folder_ / "m.gguf").value();
  }

 private:
  TestFolder folder_;
};

// Sizes by hand: Q8_0 takes 34 bytes for 32 values.
constexpr uint64_t kGateBytes = 64 * 32 / 32 * 34;  // 2176
constexpr uint64_t kDownBytes = 32 * 64 * 4;        // 8192
constexpr uint64_t kExpertBytes = 2 * kGateBytes + kDownBytes;
constexpr uint64_t kEmbeddingBytes = 64 * 100 * 2;
constexpr uint64_t kAttentionBytes = 64 * 16 * 2;

TEST(ExpertGeometryTest, FindsTheExtentsOfEveryExpert) {
  ModelFile file;
  const auto model = file.Open();
  const ExpertGeometry geometry = ReadExpertGeometry(*model).value();
  ASSERT_EQ(geometry.layers.size(), 2);
  EXPECT_EQ(geometry.total_bytes(), 2 * 4 * kExpertBytes);
  const ExpertLayer& layer = geometry.layers[1];
  EXPECT_EQ(layer.layer, 1);
  EXPECT_EQ(layer.experts, 4);
  EXPECT_EQ(layer.bytes_per_expert(), kExpertBytes);
  ASSERT_EQ(layer.parts.size(), 3);
  EXPECT_EQ(layer.parts[0].tensor, "blk.1.ffn_gate_exps.weight");
  EXPECT_EQ(layer.parts[1].tensor, "blk.1.ffn_up_exps.weight");
  EXPECT_EQ(layer.parts[2].tensor, "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(layer.parts[2].type, kF32);
  EXPECT_EQ(layer.parts[2].bytes_per_expert, kDownBytes);
  EXPECT_EQ(layer.parts[2].offset, model->Find("blk.1.ffn_down_exps.weight")->offset);
}

TEST(ExpertGeometryTest, AcceptsFusedGateAndUp) {
  ModelFile file;
  file.fused = true;
  const auto model = file.Open();
  const ExpertGeometry geometry = ReadExpertGeometry(*model).value();
  ASSERT_EQ(geometry.layers.size(), 2);
  ASSERT_EQ(geometry.layers[0].parts.size(), 2);
  EXPECT_EQ(geometry.layers[0].bytes_per_expert(), kExpertBytes);
}

TEST(ExpertGeometryTest, RefusesTensorsThatDoNotBelongTogether) {
  const auto error = [](const TestTensor& spoiled) {
    ModelFile file;
    file.spoil = {spoiled};
    return std::string(ReadExpertGeometry(*file.Open()).status().message());
  };
  EXPECT_THAT(error({"blk.1.ffn_up_exps.weight", kQ8, {64, 32, 3}}),
              AllOf(HasSubstr("layer 1"), HasSubstr("with 3 experts")));
  EXPECT_THAT(error({"blk.0.ffn_down_exps.weight", kF32, {32, 32, 4}}),
              HasSubstr("does not match"));
  EXPECT_THAT(error({"blk.0.ffn_gate_exps.weight", kQ8, {64, 128}}), HasSubstr("2-dimensional"));
}

TEST(ExpertGeometryTest, ReadsLayerNumbers) {
  EXPECT_EQ(LayerOf("blk.17.attn_k.weight"), 17);
  for (const char* name :
       {"blk.", "blk.1", "blk..x", "blk.-1.x", "blk.01.x", "output.weight", "blk.99999999999.x"}) {
    EXPECT_EQ(LayerOf(name), -1) << name;
  }
  EXPECT_TRUE(IsExpertTensor("blk.0.ffn_up_exps.weight"));
  EXPECT_FALSE(IsExpertTensor("blk.0.ffn_up_shexp.weight"));
  EXPECT_FALSE(IsExpertTensor("ffn_up_exps.weight"));
}

TEST(ModelCostTest, CountsBytesAndParameters) {
  ModelFile file;
  const auto model = file.Open();
  const ModelCost cost = EstimateCost(*model, ReadExpertGeometry(*model).value()).value();
  EXPECT_EQ(cost.parameters, 2 * 6400 + 2 * (1024 + 4 * 3 * 2048));
  EXPECT_EQ(cost.active_parameters, 6400 + 2 * (1024 + 2 * 3 * 2048));
  EXPECT_EQ(cost.table_bytes, kEmbeddingBytes);
  EXPECT_EQ(cost.dense_bytes, kEmbeddingBytes + 2 * kAttentionBytes);
  EXPECT_EQ(cost.expert_bytes, 8 * kExpertBytes);
  EXPECT_EQ(cost.draft_bytes, 0);
  EXPECT_EQ(cost.expert_bytes_per_token, 2 * 2 * kExpertBytes);
  EXPECT_EQ(cost.kv_bytes_per_token, 2 * (16 + 16) * 2);
}

TEST(ModelCostTest, LeavesOutDraftLayersAndKnowsATiedHead) {
  ModelFile file;
  file.draft = true;
  file.tied = true;
  const auto model = file.Open();
  const ModelCost cost = EstimateCost(*model, ReadExpertGeometry(*model).value()).value();
  EXPECT_EQ(cost.table_bytes, 0);
  EXPECT_EQ(cost.dense_bytes, kEmbeddingBytes + kAttentionBytes);
  EXPECT_EQ(cost.draft_bytes, kAttentionBytes + 4 * kExpertBytes);
  EXPECT_EQ(cost.expert_bytes_per_token, 2 * kExpertBytes);
  EXPECT_EQ(cost.kv_bytes_per_token, (16 + 16) * 2);
}

TEST(DescribeTest, TellsHowTheModelFits) {
  ModelFile file;
  const auto model = file.Open();
  const auto text = [&](uint64_t available, bool every_tensor = false) {
    return Describe(*model, {{64 * kGiB, available}, every_tensor});
  };
  EXPECT_THAT(
      text(20 * kGiB),
      AllOf(HasSubstr("layers 0 to 1: 4 experts of 12.25 KiB (gate q8_0, up q8_0, down f32)"),
            HasSubstr("u32[1000]"), HasSubstr("[7, 7, 7, 7, ...]"), HasSubstr("128 B of K/V (F16)"),
            HasSubstr("All experts fit")));
  EXPECT_THAT(text(kGiB / 4), HasSubstr("Too little"));
  // The dense part, K/V of 8192 tokens, working memory and reserve, then half of the experts.
  const uint64_t base = kEmbeddingBytes + 2 * kAttentionBytes + 8192 * 128 + kGiB / 2 + kGiB;
  EXPECT_THAT(text(base + 4 * kExpertBytes), HasSubstr("50 % of the experts fit"));
  EXPECT_THAT(text(2 * kGiB), Not(HasSubstr("blk.0.attn_k.weight")));
  EXPECT_THAT(text(2 * kGiB), Not(HasSubstr("tokens per second")));
  EXPECT_THAT(Describe(*model, {{64 * kGiB, base + 4 * kExpertBytes, 1e9}, false}),
              HasSubstr("tokens per second"));
  // Only where a part of the experts is in memory there is something to estimate.
  uint64_t asked = 0;
  DescribeOptions options;
  options.expected_speed = [&](const ModelCost&, const ExpertGeometry&, uint64_t arena_bytes) {
    asked = arena_bytes;
    return std::string("fast enough");
  };
  options.memory = {64 * kGiB, 20 * kGiB};
  EXPECT_THAT(Describe(*model, options), Not(HasSubstr("fast enough")));
  options.memory.available = base + 4 * kExpertBytes;
  EXPECT_THAT(Describe(*model, options), HasSubstr("fast enough"));
  EXPECT_EQ(asked, 4 * kExpertBytes);
  EXPECT_THAT(text(2 * kGiB, true), AllOf(HasSubstr("blk.0.attn_k.weight"), HasSubstr("64 x 16")));
}

TEST(DescribeTest, EscapesTextOfTheFile) {
  ModelFile file;
  EXPECT_THAT(Describe(*file.Open(), {}),
              AllOf(HasSubstr("evil \\x1b[2J name"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace strata::gguf
