// Whole models: what is converted, what is kept, and that llama.cpp runs the result.
#include "common/quant/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>

#include "common/base/test_folder.h"
#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/quant/decode.h"
#include "tests/oracle/llama_library.h"
#include "tests/oracle/llama_model.h"
#include "tests/oracle/random_model.h"
#include "tests/oracle/shared_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace strata::quant {
namespace {

using oracle::LlamaLibrary;
using oracle::LlamaModel;
using ::testing::HasSubstr;

class QuantizeModelTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ / name; }

  // A random qwen3moe model in F32.
  std::string RandomModel() {
    const absl::Status status =
        oracle::WriteRandomModel(Path("in.gguf"), {.experts = 4, .vocabulary = 128});
    EXPECT_TRUE(status.ok()) << status;
    return Path("in.gguf");
  }

  // A file with tensors of the given type, all weights 0.5, and no more metadata than needed.
  struct Shape {
    std::string name;
    TensorType type;
    std::vector<uint64_t> dims;
  };
  std::string Save(const std::string& name, const std::vector<Shape>& shapes, float value = 0.5F) {
    auto writer = gguf::Writer::Create(Path(name));
    EXPECT_TRUE(writer.ok());
    writer->Set("general.architecture", std::string("test"));
    writer->Set("general.file_type", uint32_t{0});
    for (const Shape& s : shapes) writer->DeclareTensor(s.name, s.type, s.dims);
    for (const Shape& s : shapes) {
      uint64_t count = 1;
      for (const uint64_t d : s.dims) count *= d;
      const std::vector<float> floats(count, value);
      const std::vector<int32_t> integers(count, 7);
      const auto bytes = s.type == TensorType::kI32 ? std::as_bytes(std::span(integers))
                                                    : std::as_bytes(std::span(floats));
      EXPECT_TRUE(writer->WriteTensor(s.name, bytes).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    return Path(name);
  }

 private:
  const TestFolder folder_;
};

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> Floats(const gguf::Model& model, const gguf::TensorInfo& tensor) {
  std::vector<float> out(tensor.values());
  DecodeRow(tensor.type, model.Data(tensor).data(), out.data(),
            static_cast<int64_t>(tensor.values()));
  return out;
}

TEST_F(QuantizeModelTest, DecidesByTheKindOfTensor) {
  using enum TensorType;
  const std::string in = Save("in.gguf", {{"token_embd.weight", kF32, {512, 8}},
                                          {"output_norm.weight", kF32, {512}},
                                          {"blk.0.attn_q.weight", kF32, {512, 4}},
                                          {"blk.0.attn_q.bias", kF32, {4}},
                                          {"blk.0.ffn_gate_inp.weight", kF32, {512, 4}},
                                          {"blk.0.ffn_up_exps.weight", kF32, {512, 4, 2}},
                                          {"blk.0.ffn_down_exps.weight", kF32, {96, 4, 2}},
                                          {"blk.0.odd.weight", kF32, {33, 4}},
                                          {"blk.0.ssm_conv1d.weight", kF32, {4, 64}},
                                          {"blk.0.hash", kI32, {8, 8}}});
  QuantizeOptions options;
  options.type = kQ4_K;
  options.overrides = {{"token_embd", kQ8_0}, {"blk.*.attn_q.weight", kQ6_K}};
  const auto report = QuantizeModel(in, Path("out.gguf"), options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<std::string, TensorType> want = {
      {"token_embd.weight", kQ8_0},          {"output_norm.weight", kF32},
      {"blk.0.attn_q.weight", kQ6_K},        {"blk.0.attn_q.bias", kF32},
      {"blk.0.ffn_gate_inp.weight", kF32},   {"blk.0.ffn_up_exps.weight", kQ4_K},
      {"blk.0.ffn_down_exps.weight", kQ8_0}, {"blk.0.odd.weight", kF16},
      {"blk.0.ssm_conv1d.weight", kF32},     {"blk.0.hash", kI32}};
  const auto model = gguf::Model::Open(Path("out.gguf"));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->tensors().size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const gguf::TensorInfo& tensor = (*model)->tensors()[i];
    EXPECT_EQ(tensor.type, want[std::string(tensor.name)]) << tensor.name;
    EXPECT_EQ(report->tensors[i].to, tensor.type);
    EXPECT_EQ(report->tensors[i].bytes_after, tensor.bytes);
    if (tensor.type == kI32) continue;
    for (float v : Floats(**model, tensor)) ASSERT_NEAR(v, 0.5, 0.01) << tensor.name;
  }
  EXPECT_EQ(report->tensors[6].note, "rows of 96 are no multiple of 256");
  EXPECT_EQ(report->tensors[4].note, "router");
  EXPECT_EQ(report->tensors[0].note, "");
  EXPECT_EQ((*model)->metadata().GetUint("general.file_type").value(), 14);
}

TEST_F(QuantizeModelTest, CopiesWhatIsSmallEnoughAlready) {
  const std::string in = RandomModel();
  ASSERT_TRUE(QuantizeModel(in, Path("q4.gguf"), {.type = TensorType::kQ4_K}).ok());
  const auto report = QuantizeModel(Path("q4.gguf"), Path("q6.gguf"), {.type = TensorType::kQ6_K});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->bytes_before, report->bytes_after);
  EXPECT_EQ(report->tensors[0].note, "already quantised to q4_K");
  const auto down = QuantizeModel(Path("q4.gguf"), Path("q2.gguf"), {.type = TensorType::kQ2_K});
  ASSERT_TRUE(down.ok());
  EXPECT_LT(down->bytes_after, down->bytes_before);
}

TEST_F(QuantizeModelTest, ThreadsMakeNoDifference) {
  const std::string in = RandomModel();
  QuantizeOptions options;
  options.threads = 1;
  ASSERT_TRUE(QuantizeModel(in, Path("one.gguf"), options).ok());
  options.threads = 5;
  ASSERT_TRUE(QuantizeModel(in, Path("five.gguf"), options).ok());
  EXPECT_TRUE(Content(Path("one.gguf")) == Content(Path("five.gguf")));
}

TEST_F(QuantizeModelTest, ErrorsNameWhatIsWrong) {
  const std::string in = Save("in.gguf", {{"a.weight", TensorType::kF32, {256, 2}},
                                          {"a_norm.weight", TensorType::kF32, {256, 2}}});
  const auto message = [&](const QuantizeOptions& options, const std::string& out) {
    return std::string(QuantizeModel(in, out, options).status().message());
  };
  const std::string out = Path("out.gguf");
  EXPECT_THAT(message({.type = TensorType::kIQ1_S}, out), HasSubstr("cannot quantise to iq1_s"));
  EXPECT_THAT(message({.overrides = {{"b", TensorType::kF16}}}, out),
              HasSubstr("no weight matrix of the model matches 'b'"));
  EXPECT_THAT(message({.overrides = {{"a_norm", TensorType::kF16}}}, out),
              HasSubstr("no weight matrix of the model matches 'a_norm'"));
  EXPECT_THAT(message({}, in), HasSubstr("is the model itself"));
  EXPECT_FALSE(std::filesystem::exists(out));

  const std::string nan = Save("nan.gguf", {{"a.weight", TensorType::kF32, {256, 2}}},
                               std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(std::string(QuantizeModel(nan, out, {}).status().message()),
              HasSubstr("a.weight: row 0: value nan at position 0"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(TensorOverride, Parses) {
  const auto good = ParseTensorOverride("blk.*.ffn_down=Q6_K");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->pattern, "blk.*.ffn_down");
  EXPECT_EQ(good->type, TensorType::kQ6_K);
  const auto message = [](std::string_view text) {
    return std::string(ParseTensorOverride(text).status().message());
  };
  EXPECT_THAT(message("token_embd"), HasSubstr("'token_embd' is not TENSOR=TYPE"));
  EXPECT_THAT(message("=q8_0"), HasSubstr("is not TENSOR=TYPE"));
  EXPECT_THAT(message("a=q9"), HasSubstr("unknown tensor type 'q9'"));
  EXPECT_THAT(message("a=iq1_s"), HasSubstr("cannot quantise to iq1_s"));
}

class QuantizeForLlama : public QuantizeModelTest,
                         public ::testing::WithParamInterface<std::pair<TensorType, double>> {};

// The relative error of the logits follows from that of the weights; limits are about twice what
// was measured (the tiny random model is far more sensitive than a trained one).
TEST_P(QuantizeForLlama, LogitsStayClose) {
  const LlamaLibrary* llama = LlamaLibrary::Get();
  if (llama == nullptr) GTEST_SKIP() << LlamaLibrary::WhyMissing();
  const std::string in = RandomModel();
  const auto report = QuantizeModel(in, Path("out.gguf"), {.type = GetParam().first});
  ASSERT_TRUE(report.ok()) << report.status();
  auto exact = LlamaModel::Load(*llama, in, {});
  auto quantised = LlamaModel::Load(*llama, Path("out.gguf"), {});
  ASSERT_TRUE(exact.ok()) << exact.status();
  ASSERT_TRUE(quantised.ok()) << quantised.status();
  std::vector<int32_t> tokens(64);
  for (int i = 0; i < 64; ++i) tokens[i] = i * 37 % 128;
  const auto want = (*exact)->Logits(tokens);
  const auto got = (*quantised)->Logits(tokens);
  ASSERT_TRUE(want.ok() && got.ok());
  std::vector<double> differences;
  double squares = 0;
  for (size_t i = 0; i < want->size(); ++i) {
    differences.push_back(std::abs(double{(*want)[i]} - (*got)[i]));
    squares += double{(*want)[i]} * (*want)[i];
  }
  std::ranges::nth_element(differences, differences.begin() + differences.size() / 2);
  const double median = differences[differences.size() / 2];
  const double rms = std::sqrt(squares / static_cast<double>(want->size()));
  RecordProperty("median_difference", std::to_string(median / rms));
  EXPECT_LT(median / rms, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Types, QuantizeForLlama,
    ::testing::Values(std::pair{TensorType::kF16, 0.002}, std::pair{TensorType::kBF16, 0.02},
                      std::pair{TensorType::kQ8_0, 0.05}, std::pair{TensorType::kQ6_K, 0.1},
                      std::pair{TensorType::kQ5_K, 0.2}, std::pair{TensorType::kQ4_K, 0.4},
                      std::pair{TensorType::kQ4_0, 0.4}, std::pair{TensorType::kQ3_K, 0.6},
                      std::pair{TensorType::kIQ4_NL, 0.4}, std::pair{TensorType::kIQ4_XS, 0.4},
                      std::pair{TensorType::kMXFP4, 0.5}),
    [](const auto& p) { return std::string(NameOf(p.param.first)); });

// Perplexity of `tokens`, given the logits of each position.
double Perplexity(const std::vector<float>& logits, const std::vector<int32_t>& tokens) {
  const size_t vocabulary = logits.size() / tokens.size();
  double sum = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::span row = std::span(logits).subspan(i * vocabulary, vocabulary);
    const double highest = *std::ranges::max_element(row);
    double total = 0;
    for (const float v : row) total += std::exp(v - highest);
    sum += std::log(total) + highest - row[tokens[i + 1]];
  }
  return std::exp(sum / static_cast<double>(tokens.size() - 1));
}

// The model that the repository embeds: small enough, and as good as its F16 original.
TEST_F(QuantizeModelTest, DemoModelFitsAndKeepsItsPerplexity) {
  const LlamaLibrary* llama = LlamaLibrary::Get();
  if (llama == nullptr) GTEST_SKIP() << LlamaLibrary::WhyMissing();
  const std::string in = oracle::SharedFile("models/demo/demo-f16.gguf");
  if (!std::filesystem::exists(in)) GTEST_SKIP() << "no " << in;
  QuantizeOptions options;
  options.type = TensorType::kQ5_K;
  options.overrides = {{"token_embd", TensorType::kQ6_K}};
  const auto report = QuantizeModel(in, Path("demo.gguf"), options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LE(std::filesystem::file_size(Path("demo.gguf")), 16'000'000);

  const std::string text =
      "<|im_start|>user\nWhat is a CYNIC?<|im_end|>\n<|im_start|>assistant\nCYNIC, n. A blackguard "
      "whose faulty vision sees things as they are, not as they ought to be. Hence the custom "
      "among "
      "the Scythians of plucking out a cynic's eyes to improve his vision.<|im_end|>\n"
      "<|im_start|>user\npatience?<|im_end|>\n<|im_start|>assistant\nPATIENCE, n. A minor form of "
      "despair, disguised as a virtue.<|im_end|>\n<|im_start|>user\nWhat does the Jargon File say "
      "about kluge?<|im_end|>\n<|im_start|>assistant\nkluge, n. A Rube Goldberg (or Heath "
      "Robinson) "
      "device, whether in hardware or software.<|im_end|>\n";
  double perplexity[2];
  const std::string files[2] = {in, Path("demo.gguf")};
  for (int i = 0; i < 2; ++i) {
    auto model = LlamaModel::Load(*llama, files[i], {});
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<int32_t> tokens = (*model)->Tokenize(text);
    const auto logits = (*model)->Logits(tokens);
    ASSERT_TRUE(logits.ok()) << logits.status();
    perplexity[i] = Perplexity(*logits, tokens);
  }
  RecordProperty("perplexity", std::to_string(perplexity[0]));
  RecordProperty("perplexity_quantised", std::to_string(perplexity[1]));
  EXPECT_LT(perplexity[1], perplexity[0] * 1.05);
}

}  // namespace
}  // namespace strata::quant
