// Rotary position embedding: the frequencies a file asks for.
//
// Pair i of a head is rotated by angle position * f_i with f_i = base^(-2i / rotary). Files modify
// f_i in three ways: a table of divisors (`rope_freqs.weight`, Llama 3.1), linear scaling (f_i /
// factor), or YaRN, which interpolates between both by wavelength and also scales the magnitude of
// the rotated dimensions.
#pragma once

#include <memory>
#include <vector>

#include "services/compute/models/weights.h"
#include "services/compute/ops/backend.h"

#include "absl/status/statusor.h"

namespace strata::compute {

struct RopeParameters {
  int rotary = 0;  // rotated dimensions of a head
  double base = 10000;
  enum class Scaling { kNone, kLinear, kYarn } scaling = Scaling::kNone;
  double factor = 1;
  double original_context = 0;  // YaRN: tokens the model was trained on before extension
  double beta_fast = 32;        // YaRN: rotations over the original context above which a
  double beta_slow = 1;         // dimension is left alone / below which it is interpolated fully
  double attention_factor = 1;  // YaRN: extra magnitude
};

absl::StatusOr<RopeParameters> ReadRope(const HyperParameters& parameters, int head_dim,
                                        int context_trained);

// The frequencies (rotary / 2 of them) before any divisor table.
std::vector<float> InverseFrequencies(const RopeParameters& rope);
// Factor of cosine and sine: 1 except under YaRN, there attention_factor * (1 + 0.1 ln factor).
float RopeMagnitude(const RopeParameters& rope);

// Frequencies on the device, ready for Backend::RopeTable.
class Rope {
 public:
  // Divisors come from `rope_freqs.weight` if the file has it.
  static absl::StatusOr<Rope> Load(WeightLoader& loader, const RopeParameters& parameters);

  int rotary() const { return 2 * static_cast<int>(inv_freq_.cols); }
  void FillTable(Backend& backend, std::span<const int32_t> positions,
                 const Tensor& cos_sin) const {
    backend.RopeTable(positions, inv_freq_, magnitude_, cos_sin);
  }
  // The rotation that leads from any position p to p + shift; keys have their magnitude already.
  void FillShift(Backend& backend, int32_t shift, const Tensor& cos_sin) const {
    backend.RopeTable(std::span(&shift, 1), inv_freq_, 1, cos_sin);
  }

 private:
  std::unique_ptr<Buffer> memory_;
  Tensor inv_freq_;
  float magnitude_ = 1;
};

}  // namespace strata::compute
