// One step: the rows that go through the model together, and the memory they use on the way.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <span>

#include "services/compute/experts/expert_source.h"
#include "services/compute/models/prompt_routing.h"
#include "services/compute/ops/backend.h"
#include "services/compute/state/kv_cache.h"

namespace strata::compute {

// A stack of device memory for activations: Take() pushes, a Scope pops. Its size is fixed at start
// (Model::ScratchBytes), so a step allocates nothing.
class Scratch {
 public:
  static constexpr size_t kAlignment = 64;

  explicit Scratch(std::span<std::byte> memory) : memory_(memory) {}

  Tensor Take(int64_t rows, int64_t cols, TensorType type = TensorType::kF32) {
    const size_t row_bytes = *RowBytes(type, static_cast<uint64_t>(cols));
    const size_t bytes = Bytes(rows, cols, type);
    // Sizes are promised by Model::ScratchBytes: exceeding them is a bug of that function.
    if (used_ + bytes > memory_.size()) __builtin_trap();
    const Tensor tensor{type, rows, cols, row_bytes, memory_.data() + used_};
    used_ += bytes;
    return tensor;
  }

  static size_t Bytes(int64_t rows, int64_t cols, TensorType type = TensorType::kF32) {
    const size_t bytes = static_cast<size_t>(rows) * *RowBytes(type, static_cast<uint64_t>(cols));
    return (bytes + kAlignment - 1) & ~(kAlignment - 1);
  }

  // The height of the stack, and the way back to an earlier height.
  size_t used() const { return used_; }
  void ShrinkTo(size_t used) { used_ = used; }

  // Gives back, at its end, everything taken during its life.
  class Scope {
   public:
    explicit Scope(Scratch& scratch) : scratch_(scratch), used_(scratch.used_) {}
    ~Scope() { scratch_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Scratch& scratch_;
    size_t used_;
  };

 private:
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

struct Step {
  Backend& backend;
  ExpertSource* experts;  // null for dense models
  KvCache& kv;
  Scratch& scratch;
  ExpertPriority priority;  // of expert requests: decode rows in the step make it kDecode

  // Row r of the step: this token, at this position of its sequence, stored in this K/V slot.
  std::span<const int32_t> tokens;
  std::span<const int32_t> positions;
  std::span<const int32_t> slots;
  AttentionRows attention;

  // Rows whose last hidden state somebody will read, ascending; nullopt: all of them. Of the last
  // layer the others need only keys and values: of a long prompt all rows but one.
  std::optional<std::span<const int32_t>> wanted;

  // Rows from here on read a prompt: their routing obeys `prompt_rule`, and what it did is added to
  // `tally`. unmet[layer * experts + e] counts the choices of expert e that were not granted
  // (empty: nobody wants to know).
  int first_prompt_row = 0;
  RoutingRule prompt_rule;
  RoutingTally tally;
  std::span<uint32_t> unmet;

  // Ask for the experts that the next layer will probably want while this one computes.
  bool look_ahead = false;

  Tensor x;        // [rows, hidden_size]: residual stream; in the end of the rows wanted
  Tensor cos_sin;  // [rows, rotary]: rotation of each row's position, filled by the model

  int rows() const { return static_cast<int>(x.rows); }
};

}  // namespace strata::compute
