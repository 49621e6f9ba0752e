#include "tests/oracle/random_model.h"

#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/quant/encode.h"

#include "absl/strings/str_cat.h"

namespace strata::oracle {
namespace {

struct Tensor {
  std::string name;
  TensorType type;
  std::vector<uint64_t> dims;  // the contiguous one first
  float mean;
  float deviation;
};

// Deviations keep activations near 1, so that no layer drowns another.
std::vector<Tensor> Tensors(const RandomModel& m) {
  std::vector<Tensor> tensors;
  const auto matrix = [&](const std::string& name, std::vector<uint64_t> dims, float gain = 1) {
    const float deviation = gain / std::sqrt(static_cast<float>(dims[0]));
    tensors.push_back({name, m.type, std::move(dims), 0, deviation});
  };
  const auto vector = [&](const std::string& name, uint64_t size, float mean) {
    tensors.push_back({name, TensorType::kF32, {size}, mean, 0.1F});
  };
  const uint64_t e = m.embedding;
  const uint64_t q = uint64_t{m.heads} * m.head_dim;
  const uint64_t kv = uint64_t{m.kv_heads} * m.head_dim;
  const uint64_t ff = m.feed_forward;
  matrix("token_embd.weight", {e, m.vocabulary}, std::sqrt(static_cast<float>(e)));
  vector("output_norm.weight", e, 1);
  if (!m.tied_head) matrix("output.weight", {e, m.vocabulary});
  for (uint32_t i = 0; i < m.layers; ++i) {
    const std::string layer = absl::StrCat("blk.", i, ".");
    vector(layer + "attn_norm.weight", e, 1);
    matrix(layer + "attn_q.weight", {e, q});
    matrix(layer + "attn_k.weight", {e, kv});
    matrix(layer + "attn_v.weight", {e, kv});
    matrix(layer + "attn_output.weight", {q, e});
    if (m.architecture == "qwen2") {
      vector(layer + "attn_q.bias", q, 0);
      vector(layer + "attn_k.bias", kv, 0);
      vector(layer + "attn_v.bias", kv, 0);
    }
    if (m.architecture == "qwen3" || m.architecture == "qwen3moe") {
      vector(layer + "attn_q_norm.weight", m.head_dim, 1);
      vector(layer + "attn_k_norm.weight", m.head_dim, 1);
    }
    vector(layer + "ffn_norm.weight", e, 1);
    if (m.experts == 0) {
      matrix(layer + "ffn_gate.weight", {e, ff});
      matrix(layer + "ffn_up.weight", {e, ff});
      matrix(layer + "ffn_down.weight", {ff, e}, 2);
    } else {
      matrix(layer + "ffn_gate_inp.weight", {e, m.experts}, 2);
      tensors.back().type = TensorType::kF32;
      matrix(layer + "ffn_gate_exps.weight", {e, ff, m.experts});
      matrix(layer + "ffn_up_exps.weight", {e, ff, m.experts});
      matrix(layer + "ffn_down_exps.weight", {ff, e, m.experts}, 2);
    }
  }
  return tensors;
}

void SetMetadata(const RandomModel& m, gguf::Writer* writer) {
  const auto set = [&](std::string_view key, const gguf::WriteValue& value) {
    writer->Set(std::string(m.architecture).append(".").append(key), value);
  };
  writer->Set("general.architecture", m.architecture);
  writer->Set("general.name", std::string("random weights"));
  writer->Set("general.quantization_version", uint32_t{2});
  set("block_count", m.layers);
  set("context_length", m.context);
  set("embedding_length", m.embedding);
  set("feed_forward_length", m.feed_forward);
  set("attention.head_count", m.heads);
  set("attention.head_count_kv", m.kv_heads);
  set("attention.key_length", m.head_dim);
  set("attention.value_length", m.head_dim);
  set("attention.layer_norm_rms_epsilon", 1e-6F);
  set("rope.dimension_count", m.head_dim);
  set("rope.freq_base", 10000.0F);
  set("vocab_size", m.vocabulary);
  if (m.experts > 0) {
    set("expert_count", m.experts);
    set("expert_used_count", m.experts_used);
    set("expert_feed_forward_length", m.feed_forward);
  }
  if (m.tokenizer_of.empty()) writer->Set("tokenizer.ggml.model", std::string("no_vocab"));
}

// Copies all tokenizer keys and returns the number of tokens.
absl::StatusOr<uint32_t> CopyTokenizer(const std::string& path, gguf::Writer* writer) {
  STRATA_ASSIGN_OR_RETURN(const auto file, gguf::Model::Open(path));
  for (const auto& entry : file->metadata()) {
    if (entry.key.starts_with("tokenizer.")) writer->Set(entry.key, entry.value);
  }
  STRATA_ASSIGN_OR_RETURN(const auto tokens, file->metadata().GetStrings("tokenizer.ggml.tokens"));
  return static_cast<uint32_t>(tokens.size());
}

}  // namespace

absl::Status WriteRandomModel(const std::string& path, const RandomModel& wanted) {
  RandomModel model = wanted;
  STRATA_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::Create(path));
  if (!model.tokenizer_of.empty()) {
    STRATA_ASSIGN_OR_RETURN(model.vocabulary, CopyTokenizer(model.tokenizer_of, &writer));
  }
  SetMetadata(model, &writer);
  const std::vector<Tensor> tensors = Tensors(model);
  for (const Tensor& tensor : tensors) writer.DeclareTensor(tensor.name, tensor.type, tensor.dims);
  std::mt19937_64 random(model.seed);
  for (const Tensor& tensor : tensors) {
    const std::optional<uint64_t> row_bytes = RowBytes(tensor.type, tensor.dims[0]);
    if (!row_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name, ": rows of ", tensor.dims[0],
                                                     " values cannot be ", A(NameOf(tensor.type))));
    }
    uint64_t rows = 1;
    for (size_t i = 1; i < tensor.dims.size(); ++i) rows *= tensor.dims[i];
    std::normal_distribution<float> normal(tensor.mean, tensor.deviation);
    std::vector<float> row(tensor.dims[0]);
    std::vector<std::byte> bytes(rows * *row_bytes);
    for (uint64_t r = 0; r < rows; ++r) {
      for (float& v : row) v = normal(random);
      STRATA_RETURN_IF_ERROR(quant::EncodeRow(tensor.type, row.data(),
                                              static_cast<int64_t>(row.size()),
                                              bytes.data() + r * *row_bytes));
    }
    STRATA_RETURN_IF_ERROR(writer.WriteTensor(tensor.name, bytes));
  }
  return writer.Finish();
}

}  // namespace strata::oracle
