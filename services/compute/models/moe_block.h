// Mixture-of-experts feed-forward part of a pre-norm decoder layer:
//
//   h = norm(x);  p = softmax(h Wr);  S = the k experts with the largest p
//   x += sum over e in S of p_e / (sum of p over S) * FFN_e(h)
//
// The block never touches the file: it asks the ExpertSource for the distinct experts of the step,
// computes each as soon as it is there, and combines in a fixed order, so where an expert came from
// and when does not change a bit of the result. Prompt rows may be limited to the experts in memory
// (prompt_routing.h); then the result depends on which these are.
#pragma once

#include <span>
#include <vector>

#include "services/compute/models/step.h"
#include "services/compute/models/weights.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct MoeShape {
  int hidden_size = 0;
  int experts = 0;
  int experts_used = 0;
  int ff_size = 0;  // of one expert
  float norm_eps = 0;
};

absl::StatusOr<MoeShape> ReadMoeShape(const HyperParameters& parameters, int hidden_size,
                                      float norm_eps);

class MoeBlock {
 public:
  // Tensors blk.<layer>.ffn_norm, ffn_gate_inp, and ffn_{gate,up,down}_exps or ffn_gate_up_exps
  // with ffn_down_exps; of the experts only type and shape are read.
  static absl::StatusOr<MoeBlock> Load(WeightLoader& loader, const MoeShape& shape, int layer);

  // The next block with experts, to look ahead to; it must outlive this one.
  void SetNext(const MoeBlock* next) {
    if (next->shape_.experts == shape_.experts) next_ = next;
  }

  absl::Status Forward(Step& step);
  static size_t ScratchBytes(const MoeShape& shape, int rows);

 private:
  // Type and shape of one expert's matrices; data is filled in when the expert arrives.
  struct ExpertFormat {
    bool fused_gate_up = false;
    FfnWeights weights;
  };
  // Tells the source what the router chose for rows [begin, end).
  void CountUses(Step& step, int begin, int end, ExpertPriority priority);
  // Limits the choices of the step's prompt rows by its rule.
  void RestrictPromptRows(Step& step, const Tensor& logits, const Tensor& weights);
  uint64_t ExpertBytes() const;
  // Sorts the step's (row, rank) pairs by expert: the pairs of expert e are
  // tokens_[first_[e] .. first_[e + 1]) with their rows of the expert output beside them.
  void GroupByExpert(int rows);
  // Computes a batch of experts for all rows routed to them, each as soon as it is there. `logits`:
  // of the last batch, memory for looking ahead.
  absl::Status RunBatch(Step& step, std::span<const ExpertId> batch, const Tensor& h,
                        const Tensor& expert_out, const Tensor* logits);
  FfnWeights WeightsAt(const ExpertParts& parts) const;
  // Tells the source what the next block's router would choose now: the residual stream changes
  // little from layer to layer. Overwrites `logits` and `expert_out`, which are not in use then.
  void LookAhead(Step& step, const Tensor& logits, const Tensor& expert_out);

  MoeShape shape_;
  int layer_ = 0;
  Tensor norm_, router_;
  const MoeBlock* next_ = nullptr;
  ExpertFormat format_;

  // Reused from step to step: no allocation once they have grown.
  std::vector<int32_t> routed_;
  std::vector<uint32_t> counts_;
  std::vector<ExpertUse> uses_;
  RestrictedRouter restricted_;
  std::vector<float> prompt_logits_;
  std::vector<float> prompt_weights_;
  std::vector<uint8_t> in_memory_;
  std::vector<uint8_t> allowed_;
  std::vector<int32_t> first_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> outputs_;
  std::vector<ExpertId> wanted_;
  std::vector<ExpertTask> tasks_;
  std::vector<float> ahead_logits_;
  std::vector<int32_t> ahead_order_;
  std::vector<uint32_t> ahead_counts_;
  std::vector<ExpertId> ahead_;
};

}  // namespace strata::compute
