#include "services/compute/models/moe_block.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "common/base/status.h"
#include "common/quant/decode.h"
#include "common/quant/weight_layout.h"

namespace strata::compute {
namespace {

// Type and row size of the 3-D tensor that holds one matrix of every expert.
absl::StatusOr<Tensor> ExpertMatrix(const WeightLoader& loader, const std::string& name,
                                    int64_t out, int64_t in, int experts) {
  const gguf::TensorInfo* info = loader.file().Find(name);
  if (info == nullptr) {
    return absl::NotFoundError(absl::StrCat("the model file lacks tensor '", name, "'"));
  }
  if (info->dims[0] != static_cast<uint64_t>(in) || info->dims[1] != static_cast<uint64_t>(out) ||
      info->dims[2] != static_cast<uint64_t>(experts)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "' has shape {", info->dims[0], ", ", info->dims[1], ", ",
                     info->dims[2], "}; expected {", in, ", ", out, ", ", experts, "}"));
  }
  if (!quant::CanDecode(info->type)) {
    return absl::UnimplementedError(absl::StrCat("tensor '", name, "' has type ",
                                                 A(NameOf(info->type)),
                                                 ", which no kernel can use as a weight"));
  }
  return Tensor{info->type, out, in, *RowBytes(info->type, static_cast<uint64_t>(in)), nullptr};
}

Tensor At(Tensor matrix, const std::byte* data, quant::WeightLayout layout) {
  matrix.data = const_cast<std::byte*>(data);  // weights are never written through a Tensor
  matrix.layout = layout;
  return matrix;
}

}  // namespace

absl::StatusOr<MoeShape> ReadMoeShape(const HyperParameters& parameters, int hidden_size,
                                      float norm_eps) {
  MoeShape shape;
  shape.hidden_size = hidden_size;
  shape.norm_eps = norm_eps;
  STRATA_ASSIGN_OR_RETURN(shape.experts, parameters.Get("expert_count"));
  STRATA_ASSIGN_OR_RETURN(shape.experts_used, parameters.Get("expert_used_count"));
  STRATA_ASSIGN_OR_RETURN(const int dense_ff, parameters.Get("feed_forward_length", 0));
  STRATA_ASSIGN_OR_RETURN(shape.ff_size, parameters.Get("expert_feed_forward_length", dense_ff));
  if (shape.experts > UINT16_MAX || shape.experts_used > shape.experts || shape.ff_size <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metadata: expert_count = ", shape.experts, ", expert_used_count = ", shape.experts_used,
        ", expert_feed_forward_length = ", shape.ff_size, " do not fit together"));
  }
  return shape;
}

absl::StatusOr<MoeBlock> MoeBlock::Load(WeightLoader& loader, const MoeShape& shape, int layer) {
  MoeBlock block;
  block.shape_ = shape;
  block.layer_ = layer;
  const auto name = [&](std::string_view suffix) { return WeightLoader::InLayer(layer, suffix); };
  const int64_t hidden = shape.hidden_size;
  const int64_t ff = shape.ff_size;
  STRATA_ASSIGN_OR_RETURN(block.norm_, loader.Vector(name("ffn_norm.weight"), hidden));
  STRATA_ASSIGN_OR_RETURN(block.router_,
                          loader.Matrix(name("ffn_gate_inp.weight"), shape.experts, hidden));

  FfnWeights& weights = block.format_.weights;
  block.format_.fused_gate_up = loader.Has(name("ffn_gate_up_exps.weight"));
  if (block.format_.fused_gate_up) {
    STRATA_ASSIGN_OR_RETURN(weights.gate, ExpertMatrix(loader, name("ffn_gate_up_exps.weight"),
                                                       2 * ff, hidden, shape.experts));
    weights.gate.rows = ff;
    weights.up = weights.gate;
  } else {
    STRATA_ASSIGN_OR_RETURN(weights.gate, ExpertMatrix(loader, name("ffn_gate_exps.weight"), ff,
                                                       hidden, shape.experts));
    STRATA_ASSIGN_OR_RETURN(
        weights.up, ExpertMatrix(loader, name("ffn_up_exps.weight"), ff, hidden, shape.experts));
  }
  STRATA_ASSIGN_OR_RETURN(
      weights.down, ExpertMatrix(loader, name("ffn_down_exps.weight"), hidden, ff, shape.experts));
  return block;
}

size_t MoeBlock::ScratchBytes(const MoeShape& shape, int rows) {
  return Scratch::Bytes(rows, shape.hidden_size) + Scratch::Bytes(rows, shape.experts) +
         Scratch::Bytes(rows, shape.experts_used, TensorType::kI32) +
         Scratch::Bytes(rows, shape.experts_used) +
         Scratch::Bytes(int64_t{rows} * shape.experts_used, shape.hidden_size);
}

FfnWeights MoeBlock::WeightsAt(const ExpertParts& parts) const {
  const FfnWeights& format = format_.weights;
  if (format_.fused_gate_up) {
    const std::byte* up =
        parts.part[0] + static_cast<size_t>(format.gate.rows) * format.gate.row_bytes;
    return {At(format.gate, parts.part[0], parts.layout[0]), At(format.up, up, parts.layout[0]),
            At(format.down, parts.part[1], parts.layout[1])};
  }
  return {At(format.gate, parts.part[0], parts.layout[0]),
          At(format.up, parts.part[1], parts.layout[1]),
          At(format.down, parts.part[2], parts.layout[2])};
}

void MoeBlock::CountUses(Step& step, int begin, int end, ExpertPriority priority) {
  if (begin == end) return;
  const auto used = static_cast<size_t>(shape_.experts_used);
  counts_.assign(static_cast<size_t>(shape_.experts), 0);
  for (size_t i = static_cast<size_t>(begin) * used; i < static_cast<size_t>(end) * used; ++i) {
    ++counts_[static_cast<size_t>(routed_[i])];
  }
  uses_.clear();
  for (size_t e = 0; e < counts_.size(); ++e) {
    if (counts_[e] == 0) continue;
    uses_.push_back({{static_cast<uint16_t>(layer_), static_cast<uint16_t>(e)}, counts_[e]});
  }
  step.experts->CountUses(uses_, priority);
}

uint64_t MoeBlock::ExpertBytes() const {
  const FfnWeights& w = format_.weights;
  return static_cast<uint64_t>(w.gate.rows) * w.gate.row_bytes +
         static_cast<uint64_t>(w.up.rows) * w.up.row_bytes +
         static_cast<uint64_t>(w.down.rows) * w.down.row_bytes;
}

void MoeBlock::RestrictPromptRows(Step& step, const Tensor& logits, const Tensor& weights) {
  const int first = step.first_prompt_row;
  const int64_t rows = step.rows() - first;
  const auto experts = static_cast<size_t>(shape_.experts);
  const std::span<int32_t> ids = std::span(routed_).subspan(
      static_cast<size_t>(first) * static_cast<size_t>(shape_.experts_used));
  in_memory_.resize(experts);
  step.experts->FindResident(static_cast<uint16_t>(layer_), in_memory_);
  // Of the counts, the ones of the prompt rows are the last that CountUses made.
  bool missing = false;
  for (size_t e = 0; e < experts; ++e) missing |= counts_[e] > 0 && in_memory_[e] == 0;
  if (!missing) {
    step.tally.Add({ids.size(), 0, static_cast<uint64_t>(rows), static_cast<double>(rows), 0});
    return;
  }
  allowed_ = in_memory_;
  prompt_logits_.resize(static_cast<size_t>(rows) * experts);
  prompt_weights_.resize(ids.size());
  const Tensor row_weights = weights.Rows(first, rows);
  step.backend.CopyToHost(std::as_writable_bytes(std::span(prompt_logits_)),
                          logits.Rows(first, rows).data);
  step.backend.CopyToHost(std::as_writable_bytes(std::span(prompt_weights_)), row_weights.data);
  restricted_.Restrict(step.prompt_rule, shape_.experts_used, prompt_logits_, allowed_, ids,
                       prompt_weights_, &step.tally);
  step.backend.CopyToDevice(row_weights.data, std::as_bytes(std::span(prompt_weights_)));
  for (size_t e = 0; e < experts; ++e) {
    if (counts_[e] == 0 || allowed_[e] != 0) continue;
    step.tally.bytes_not_read += ExpertBytes();
    if (!step.unmet.empty()) step.unmet[static_cast<size_t>(layer_) * experts + e] += counts_[e];
  }
}

void MoeBlock::GroupByExpert(int rows) {
  // Counting sort: stable, so the rows of one expert stay in the order of the step.
  const size_t pairs = static_cast<size_t>(rows) * static_cast<size_t>(shape_.experts_used);
  first_.assign(static_cast<size_t>(shape_.experts) + 1, 0);
  for (size_t i = 0; i < pairs; ++i) ++first_[static_cast<size_t>(routed_[i]) + 1];
  wanted_.clear();
  for (size_t e = 0; e < static_cast<size_t>(shape_.experts); ++e) {
    if (first_[e + 1] > 0) {
      wanted_.push_back({static_cast<uint16_t>(layer_), static_cast<uint16_t>(e)});
    }
    first_[e + 1] += first_[e];
  }
  tokens_.resize(pairs);
  outputs_.resize(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const size_t at = static_cast<size_t>(first_[static_cast<size_t>(routed_[i])]++);
    tokens_[at] = static_cast<int32_t>(i / static_cast<size_t>(shape_.experts_used));
    outputs_[at] = static_cast<int32_t>(i);
  }
  // The pass above moved every start to its end: shift back.
  for (size_t e = static_cast<size_t>(shape_.experts); e > 0; --e) first_[e] = first_[e - 1];
  first_[0] = 0;
}

absl::Status MoeBlock::Forward(Step& step) {
  Backend& backend = step.backend;
  const Scratch::Scope scope(step.scratch);
  const int rows = step.rows();
  const int used = shape_.experts_used;
  const Tensor h = step.scratch.Take(rows, shape_.hidden_size);
  const Tensor logits = step.scratch.Take(rows, shape_.experts);
  const Tensor ids = step.scratch.Take(rows, used, TensorType::kI32);
  const Tensor weights = step.scratch.Take(rows, used);
  const Tensor expert_out = step.scratch.Take(int64_t{rows} * used, shape_.hidden_size);

  backend.RmsNorm(step.x, norm_, shape_.norm_eps, h);
  backend.MatMul(h, std::array{router_}, {}, std::array{logits}, /*accumulate=*/false);
  backend.Route(logits, used, /*normalize=*/true, ids, weights);
  routed_.resize(static_cast<size_t>(rows) * static_cast<size_t>(used));
  backend.CopyToHost(std::as_writable_bytes(std::span(routed_)), ids.data);
  const int first_prompt_row = step.first_prompt_row;
  CountUses(step, 0, first_prompt_row, ExpertPriority::kDecode);
  CountUses(step, first_prompt_row, rows, ExpertPriority::kPrompt);
  if (step.prompt_rule.mode != PromptRouting::kFull && first_prompt_row < rows) {
    RestrictPromptRows(step, logits, weights);
  }
  GroupByExpert(rows);

  // A chunk may want more experts than one batch may hold.
  for (size_t i = 0; i < wanted_.size(); i += ExpertSource::kMaxBatch) {
    const auto batch = std::span(wanted_).subspan(
        i, std::min<size_t>(ExpertSource::kMaxBatch, wanted_.size() - i));
    // Behind the last demands of this layer.
    const bool last = i + batch.size() == wanted_.size();
    STRATA_RETURN_IF_ERROR(RunBatch(step, batch, h, expert_out, last ? &logits : nullptr));
  }
  backend.CombineExperts(expert_out, weights, step.x);
  return absl::OkStatus();
}

void MoeBlock::LookAhead(Step& step, const Tensor& logits, const Tensor& expert_out) {
  ahead_.clear();
  // The last layer has only the rows wanted to do (step.h).
  const bool narrows =
      next_ != nullptr && next_->layer_ + 1 == step.kv.shape().layers && step.wanted.has_value();
  const int64_t all = narrows ? static_cast<int64_t>(step.wanted->size()) : step.rows();
  if (next_ != nullptr && all > 0) {
    // Of a long prompt a part of the rows tells enough.
    constexpr int64_t kRows = 256;
    const int64_t rows = std::min(all, kRows);
    const auto experts = static_cast<size_t>(next_->shape_.experts);
    const Tensor h = expert_out.Rows(0, rows);
    const Tensor guess = logits.Rows(0, rows);
    Tensor x = step.x.Rows(step.rows() - rows, rows);
    if (narrows) {
      step.backend.GatherRows(step.x, step.wanted->last(static_cast<size_t>(rows)), h);
      x = h;
    }
    step.backend.RmsNorm(x, next_->norm_, next_->shape_.norm_eps, h);
    step.backend.MatMul(h, std::array{next_->router_}, {}, std::array{guess},
                        /*accumulate=*/false);
    ahead_logits_.resize(static_cast<size_t>(rows) * experts);
    step.backend.CopyToHost(std::as_writable_bytes(std::span(ahead_logits_)), guess.data);
    ahead_counts_.assign(experts, 0);
    ahead_order_.resize(experts);
    for (size_t at = 0; at < ahead_logits_.size(); at += experts) {
      std::iota(ahead_order_.begin(), ahead_order_.end(), 0);
      const float* const row = ahead_logits_.data() + at;
      const auto end = ahead_order_.begin() + next_->shape_.experts_used;
      std::nth_element(ahead_order_.begin(), end - 1, ahead_order_.end(),
                       [row](int32_t a, int32_t b) { return row[a] > row[b]; });
      for (auto e = ahead_order_.begin(); e != end; ++e) ++ahead_counts_[static_cast<size_t>(*e)];
    }
    // The most wanted first.
    std::iota(ahead_order_.begin(), ahead_order_.end(), 0);
    std::stable_sort(ahead_order_.begin(), ahead_order_.end(), [this](int32_t a, int32_t b) {
      return ahead_counts_[static_cast<size_t>(a)] > ahead_counts_[static_cast<size_t>(b)];
    });
    for (const int32_t e : ahead_order_) {
      if (ahead_counts_[static_cast<size_t>(e)] == 0) break;
      ahead_.push_back({static_cast<uint16_t>(next_->layer_), static_cast<uint16_t>(e)});
    }
  }
  step.experts->LookAhead(ahead_, step.priority);
}

absl::Status MoeBlock::RunBatch(Step& step, std::span<const ExpertId> batch, const Tensor& h,
                                const Tensor& expert_out, const Tensor* logits) {
  step.experts->Begin(batch, step.priority);
  if (step.look_ahead && logits != nullptr) LookAhead(step, *logits, expert_out);
  for (;;) {
    absl::StatusOr<std::span<const ReadyExpert>> ready = step.experts->Next();
    if (!ready.ok()) {
      step.experts->End();
      return ready.status();
    }
    if (ready->empty()) break;
    tasks_.clear();
    for (const ReadyExpert& expert : *ready) {
      const auto begin = static_cast<size_t>(first_[expert.id.index]);
      const auto count = static_cast<size_t>(first_[expert.id.index + 1u]) - begin;
      tasks_.push_back({WeightsAt(expert.parts), std::span(tokens_).subspan(begin, count),
                        std::span(outputs_).subspan(begin, count)});
    }
    step.backend.ExpertFfn(h, tasks_, expert_out);
  }
  step.experts->End();
  return absl::OkStatus();
}

}  // namespace strata::compute
