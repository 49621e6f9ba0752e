// A model: weights plus the order of operations. Stateless between steps; the state of sequences
// lives in KvCache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "services/compute/models/step.h"
#include "services/compute/ops/backend.h"
#include "services/compute/state/state_layout.h"

#include "absl/status/status.h"

namespace strata::compute {

struct ModelInfo {
  std::string architecture;
  int layers = 0;
  int hidden_size = 0;
  int vocab_size = 0;
  int context_trained = 0;
  int experts = 0;       // per layer; 0 = dense
  int experts_used = 0;  // per token
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  // Layers, heads and width of the K/V cache (the number format is the caller's choice).
  virtual KvShape kv_shape() const = 0;
  // Device bytes of activations that a step of `rows` rows needs.
  virtual size_t ScratchBytes(int rows) const = 0;

  // Runs all rows of the step through all layers and leaves the last hidden state of those wanted
  // in step.x. Fails only if an expert cannot be had: NotFound/DataLoss for a drive error (the same
  // expert will fail again), Unavailable while the expert store is away (worth another try).
  virtual absl::Status Forward(Step& step) = 0;

  // The next two only if kv_shape().keys_turn.
  //
  // Turns the stored keys of the given K/V slots, in all layers, to positions `shift` further on.
  virtual void MoveKeys(Backend& backend, KvCache& kv, Scratch& scratch,
                        std::span<const int32_t> slots, int shift) const = 0;
  // Runs the step's rows through the layers before `layer`, storing their K/V there, and writes the
  // keys that they would get in `layer` to `keys` [rows, kv width] without storing them. Fails like
  // Forward.
  virtual absl::Status FreshKeys(Step& step, int layer, std::span<float> keys) = 0;

  // logits[i] = output head applied to the step's row rows[i], which was wanted. Callable many
  // times after Forward.
  virtual void Logits(Step& step, std::span<const int32_t> rows, const Tensor& logits) = 0;
};

}  // namespace strata::compute
