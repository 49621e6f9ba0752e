#include "common/gguf/model_cost.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>

#include "common/base/checked.h"

namespace strata::gguf {
namespace {

constexpr uint64_t kF16Bytes = 2;
constexpr uint64_t kNoLayers = std::numeric_limits<uint64_t>::max();

// Keys of the architecture, with its name in front.
class ArchKeys {
 public:
  explicit ArchKeys(const Metadata& metadata) : metadata_(metadata) {
    arch_ = std::string(metadata.GetString(kKeyArchitecture, "").value_or(""));
  }
  std::optional<uint64_t> Uint(std::string_view key) const {
    const absl::StatusOr<uint64_t> value = metadata_.GetUint(Name(key));
    return value.ok() ? std::optional(*value) : std::nullopt;
  }
  std::optional<std::vector<uint64_t>> PerLayer(std::string_view key, uint64_t layers) const {
    absl::StatusOr<std::vector<uint64_t>> value = metadata_.GetUintPerLayer(Name(key), layers);
    return value.ok() ? std::optional(*std::move(value)) : std::nullopt;
  }

 private:
  std::string Name(std::string_view key) const { return absl::StrCat(arch_, ".", A(key)); }

  const Metadata& metadata_;
  std::string arch_;
};

bool IsTable(std::string_view name, bool tied_head) {
  if (name == "token_embd.weight") return !tied_head;
  return std::ranges::any_of(
      std::array<std::string_view, 4>{"per_layer_token_embd.weight", ".engram_embd.weight",
                                      ".nextn.embed_tokens.weight", "position_embd.weight"},
      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// The first layer that is a draft layer.
uint64_t FirstDraftLayer(const ArchKeys& keys) {
  const uint64_t drafts = keys.Uint("nextn_predict_layers").value_or(0);
  const std::optional<uint64_t> blocks = keys.Uint("block_count");
  if (drafts == 0 || !blocks || drafts > *blocks) return kNoLayers;
  return *blocks - drafts;
}

absl::StatusOr<uint64_t> UsedExperts(const ArchKeys& keys, const ExpertGeometry& geometry) {
  const std::optional<uint64_t> used = keys.Uint("expert_used_count")
                                           ? keys.Uint("expert_used_count")
                                           : keys.Uint("num_experts_per_tok");
  if (!used) {
    return absl::InvalidArgumentError(
        "the file has experts but no key says how many of them a token uses "
        "(ARCHITECTURE.expert_used_count)");
  }
  for (const ExpertLayer& layer : geometry.layers) {
    if (*used > layer.experts) {
      return absl::InvalidArgumentError(absl::StrCat("a token uses ", *used, " experts but layer ",
                                                     layer.layer, " has only ", layer.experts));
    }
  }
  return *used;
}

std::optional<uint64_t> KvBytesPerToken(const Model& model, const ArchKeys& keys,
                                        uint64_t first_draft) {
  // Recurrent layers name their fused projection like attention does, so that name decides only in
  // models without such layers.
  const bool has_recurrent_layers = keys.Uint("ssm.inner_size").has_value();
  std::set<uint64_t> layers;  // with a plain K/V cache
  for (const TensorInfo& tensor : model.tensors()) {
    const int64_t layer = LayerOf(tensor.name);
    if (layer >= 0 && static_cast<uint64_t>(layer) < first_draft &&
        (tensor.name.ends_with(".attn_k.weight") ||
         (!has_recurrent_layers && tensor.name.ends_with(".attn_qkv.weight")))) {
      layers.insert(static_cast<uint64_t>(layer));
    }
  }
  const std::optional<uint64_t> blocks = keys.Uint("block_count");
  if (layers.empty() || !blocks || *blocks > model.tensors().size()) return std::nullopt;
  const std::optional<std::vector<uint64_t>> kv_heads =
      keys.PerLayer("attention.head_count_kv", *blocks);
  if (!kv_heads) return std::nullopt;

  std::optional<uint64_t> key_length = keys.Uint("attention.key_length");
  std::optional<uint64_t> value_length = keys.Uint("attention.value_length");
  if (!key_length || !value_length) {
    const std::optional<uint64_t> width = keys.Uint("embedding_length");
    const std::optional<uint64_t> heads = keys.Uint("attention.head_count");
    if (!width || !heads || *heads == 0) return std::nullopt;
    key_length = value_length = *width / *heads;
  }
  const std::optional<uint64_t> both = CheckedAdd(*key_length, *value_length);
  if (!both) return std::nullopt;
  uint64_t total = 0;
  for (const uint64_t layer : layers) {
    if (layer >= kv_heads->size()) return std::nullopt;
    const std::optional<uint64_t> values = CheckedMul((*kv_heads)[layer], *both);
    const std::optional<uint64_t> bytes = values ? CheckedMul(*values, kF16Bytes) : std::nullopt;
    const std::optional<uint64_t> sum = bytes ? CheckedAdd(total, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
    total = *sum;
  }
  return total;
}

}  // namespace

absl::StatusOr<ModelCost> EstimateCost(const Model& model, const ExpertGeometry& geometry) {
  const ArchKeys keys(model.metadata());
  const uint64_t first_draft = FirstDraftLayer(keys);
  const bool tied_head = model.Find("output.weight") == nullptr;
  ModelCost cost;
  for (const TensorInfo& tensor : model.tensors()) {
    // Sums cannot overflow in bytes (tensors do not overlap in files) but could in values.
    const std::optional<uint64_t> sum = CheckedAdd(cost.parameters, tensor.values());
    if (!sum) return absl::InvalidArgumentError("the model has more than 2^64 parameters");
    cost.parameters = *sum;
    const int64_t layer = LayerOf(tensor.name);
    if (layer >= 0 && static_cast<uint64_t>(layer) >= first_draft) {
      cost.draft_bytes += tensor.bytes;
    } else if (IsExpertTensor(tensor.name)) {
      cost.expert_bytes += tensor.bytes;
    } else if (IsTable(tensor.name, tied_head)) {
      cost.table_bytes += tensor.bytes;
    } else {
      cost.dense_bytes += tensor.bytes;
      cost.active_parameters += tensor.values();
    }
  }
  if (!geometry.layers.empty()) {
    STRATA_ASSIGN_OR_RETURN(const uint64_t used, UsedExperts(keys, geometry));
    cost.used_experts = static_cast<uint32_t>(used);  // at most a layer's 32-bit count
    for (const ExpertLayer& layer : geometry.layers) {
      if (layer.layer >= first_draft) continue;
      cost.expert_bytes_per_token += used * layer.bytes_per_expert();
      cost.active_parameters += used * layer.values_per_expert();
    }
  }
  cost.kv_bytes_per_token = KvBytesPerToken(model, keys, first_draft);
  return cost;
}

}  // namespace strata::gguf
