#include "services/compute/models/plain_decoder.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "services/compute/models/decoder_ends.h"

namespace strata::compute {
namespace {

class PlainDecoder final : public Model {
 public:
  PlainDecoder(DecoderSpec spec, DecoderEnds ends)
      : spec_(std::move(spec)), ends_(std::move(ends)) {}

  absl::Status LoadLayers(WeightLoader& loader) {
    for (int i = 0; i < spec_.info.layers; ++i) {
      STRATA_ASSIGN_OR_RETURN(const AttentionBlock attention,
                              AttentionBlock::Load(loader, spec_.attention, i));
      if (spec_.moe) {
        STRATA_ASSIGN_OR_RETURN(MoeBlock moe, MoeBlock::Load(loader, *spec_.moe, i));
        layers_.push_back({attention, std::move(moe)});
      } else {
        STRATA_ASSIGN_OR_RETURN(const FfnBlock dense, FfnBlock::Load(loader, *spec_.dense, i));
        layers_.push_back({attention, dense});
      }
    }
    MoeBlock* before = nullptr;
    for (Layer& layer : layers_) {
      MoeBlock* const moe = std::get_if<MoeBlock>(&layer.feed_forward);
      if (before != nullptr && moe != nullptr) before->SetNext(moe);
      if (moe != nullptr) before = moe;
    }
    return absl::OkStatus();
  }

  const ModelInfo& info() const override { return spec_.info; }

  KvShape kv_shape() const override {
    return {spec_.info.layers, spec_.attention.kv_heads, spec_.attention.head_dim, TensorType::kF16,
            /*keys_turn=*/true};
  }

  size_t ScratchBytes(int rows) const override {
    const size_t feed_forward = spec_.moe ? MoeBlock::ScratchBytes(*spec_.moe, rows)
                                          : FfnBlock::ScratchBytes(*spec_.dense, rows);
    return ends_.ScratchBytes(rows) +
           std::max(AttentionBlock::ScratchBytes(spec_.attention, rows), feed_forward);
  }

  absl::Status Forward(Step& step) override {
    ends_.Begin(step);
    if (step.wanted && step.wanted->size() == step.tokens.size()) step.wanted.reset();
    if (!step.wanted) return ForwardLayers(step, layers_.size());
    STRATA_RETURN_IF_ERROR(ForwardLayers(step, layers_.size() - 1));
    return ForwardLast(step, *step.wanted);
  }

  void MoveKeys(Backend& backend, KvCache& kv, Scratch& scratch, std::span<const int32_t> slots,
                int shift) const override {
    const Scratch::Scope scope(scratch);
    const Tensor cos_sin = scratch.Take(1, ends_.rope().rotary());
    ends_.rope().FillShift(backend, shift, cos_sin);
    for (int layer = 0; layer < spec_.info.layers; ++layer) {
      backend.RotateKeys(kv.Layer(layer), slots, cos_sin, spec_.attention.rope_style);
    }
  }

  absl::Status FreshKeys(Step& step, int layer, std::span<float> keys) override {
    ends_.Begin(step);
    STRATA_RETURN_IF_ERROR(ForwardLayers(step, static_cast<size_t>(layer)));
    layers_[static_cast<size_t>(layer)].attention.Keys(step, keys);
    return absl::OkStatus();
  }

  void Logits(Step& step, std::span<const int32_t> rows, const Tensor& logits) override {
    if (!step.wanted) return ends_.Logits(step, rows, logits);
    std::vector<int32_t> places;  // in step.x
    for (const int32_t row : rows) {
      const auto place = std::ranges::lower_bound(*step.wanted, row);
      assert(place != step.wanted->end() && *place == row);
      places.push_back(static_cast<int32_t>(place - step.wanted->begin()));
    }
    ends_.Logits(step, places, logits);
  }

 private:
  struct Layer {
    AttentionBlock attention;
    std::variant<FfnBlock, MoeBlock> feed_forward;
  };

  // step.x through the first `count` layers.
  absl::Status ForwardLayers(Step& step, size_t count) {
    for (Layer& layer : std::span(layers_).first(count)) {
      layer.attention.Forward(step);
      STRATA_RETURN_IF_ERROR(FeedForward(step, layer));
    }
    return absl::OkStatus();
  }

  // Through the last layer, from which on step.x has the wanted rows only.
  absl::Status ForwardLast(Step& step, std::span<const int32_t> wanted) {
    Layer& layer = layers_.back();
    const Tensor x = step.scratch.Take(static_cast<int64_t>(wanted.size()), step.x.cols);
    layer.attention.ForwardLast(step, wanted, x);
    if (wanted.empty()) return absl::OkStatus();
    const auto first_prompt_row = std::ranges::lower_bound(wanted, step.first_prompt_row);
    const int before =
        std::exchange(step.first_prompt_row, static_cast<int>(first_prompt_row - wanted.begin()));
    absl::Status status = FeedForward(step, layer);
    step.first_prompt_row = before;
    return status;
  }

  static absl::Status FeedForward(Step& step, Layer& layer) {
    if (MoeBlock* moe = std::get_if<MoeBlock>(&layer.feed_forward)) return moe->Forward(step);
    std::get<FfnBlock>(layer.feed_forward).Forward(step);
    return absl::OkStatus();
  }

  DecoderSpec spec_;
  DecoderEnds ends_;
  std::vector<Layer> layers_;
};

}  // namespace

absl::StatusOr<DecoderSpec> ReadDecoderSpec(const HyperParameters& parameters,
                                            const gguf::Model& file) {
  DecoderSpec spec;
  STRATA_ASSIGN_OR_RETURN(spec.info, ReadModelInfo(parameters, file));
  STRATA_ASSIGN_OR_RETURN(spec.attention, ReadAttentionShape(parameters, spec.info.hidden_size));
  STRATA_ASSIGN_OR_RETURN(spec.rope,
                          ReadRope(parameters, spec.attention.head_dim, spec.info.context_trained));
  STRATA_ASSIGN_OR_RETURN(const int experts, parameters.Get("expert_count", 0));
  if (experts > 0) {
    STRATA_ASSIGN_OR_RETURN(
        spec.moe, ReadMoeShape(parameters, spec.info.hidden_size, spec.attention.norm_eps));
    spec.info.experts = spec.moe->experts;
    spec.info.experts_used = spec.moe->experts_used;
  } else {
    STRATA_ASSIGN_OR_RETURN(const int ff_size, parameters.Get("feed_forward_length"));
    spec.dense = FfnShape{spec.info.hidden_size, ff_size, spec.attention.norm_eps};
  }
  return spec;
}

absl::StatusOr<std::unique_ptr<Model>> LoadPlainDecoder(WeightLoader& loader, DecoderSpec spec) {
  STRATA_ASSIGN_OR_RETURN(Rope rope, Rope::Load(loader, spec.rope));
  STRATA_ASSIGN_OR_RETURN(DecoderEnds ends,
                          DecoderEnds::Load(loader, std::move(rope), spec.info.hidden_size,
                                            spec.info.vocab_size, spec.attention.norm_eps));
  auto decoder = std::make_unique<PlainDecoder>(std::move(spec), std::move(ends));
  STRATA_RETURN_IF_ERROR(decoder->LoadLayers(loader));
  return decoder;
}

}  // namespace strata::compute
