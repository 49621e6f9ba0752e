// Tensors with contents for tests: random activations, weights of any type, and products in double
// precision to compare with.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "common/quant/decode.h"
#include "common/quant/float16.h"
#include "services/compute/ops/tensor.h"

namespace strata::compute::testing {

// A tensor that owns its (host) memory.
struct Owned {
  Owned() = default;
  Owned(Owned&&) = default;
  Owned& operator=(Owned&&) = default;
  Owned(const Owned& other) : memory(other.memory), tensor(other.tensor) {
    tensor.data = memory.data();
  }
  Owned& operator=(const Owned& other) { return *this = Owned(other); }

  std::vector<std::byte> memory;
  Tensor tensor;

  float* Row(int64_t r) { return reinterpret_cast<float*>(tensor.data + r * tensor.row_bytes); }
  const float* Row(int64_t r) const {
    return reinterpret_cast<const float*>(tensor.data + r * tensor.row_bytes);
  }
};

inline Owned MakeTensor(TensorType type, int64_t rows, int64_t cols) {
  Owned out;
  const size_t row_bytes = RowBytes(type, cols).value();
  out.memory.resize(row_bytes * rows);
  out.tensor = {type, rows, cols, row_bytes, out.memory.data()};
  return out;
}

inline Owned RandomFloats(int64_t rows, int64_t cols, uint32_t seed) {
  Owned out = MakeTensor(TensorType::kF32, rows, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) out.Row(r)[c] = normal(random);
  }
  return out;
}

// Whether `n` floats are the same bit for bit.
inline bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(reinterpret_cast<const std::byte*>(a), reinterpret_cast<const std::byte*>(b),
                     static_cast<size_t>(n) * sizeof(float)) == 0;
}

// Whether a weight tensor may have this type.
inline bool IsWeightType(TensorType type) {
  switch (type) {
    case TensorType::kI8:
    case TensorType::kI16:
    case TensorType::kI32:
    case TensorType::kI64:
    case TensorType::kF64:
    case TensorType::kQ8_1:
    case TensorType::kQ8_K:
      return false;
    default:
      return true;
  }
}

// Random codes; the floating-point scales of every block are set to moderate values, so that sums
// neither overflow nor hide errors behind one huge block.
inline Owned RandomWeights(TensorType type, int64_t rows, int64_t cols, uint32_t seed) {
  if (type == TensorType::kF32) {
    Owned out = RandomFloats(rows, cols, seed);
    return out;
  }
  Owned out = MakeTensor(type, rows, cols);
  std::mt19937 random(seed);
  for (std::byte& b : out.memory) b = static_cast<std::byte>(random());
  const TensorTypeInfo& info = InfoOf(type);
  std::uniform_real_distribution<float> scale(0.5f, 1.5f);
  const auto half = [&](size_t at, float factor) {
    const uint16_t bits = quant::FloatToHalf(scale(random) * factor * (random() % 4 ? 1 : -1));
    std::memcpy(out.memory.data() + at, &bits, 2);
  };
  for (size_t at = 0; at < out.memory.size(); at += info.block_bytes) {
    switch (type) {
      case TensorType::kF16:
        half(at, 1);
        break;
      case TensorType::kBF16: {
        const uint16_t bits = quant::FloatToBf16(scale(random) - 1);
        std::memcpy(out.memory.data() + at, &bits, 2);
        break;
      }
      case TensorType::kQ4_1:
      case TensorType::kQ5_1:
      case TensorType::kQ4_K:
      case TensorType::kQ5_K:
        half(at, 0.1f);
        half(at + 2, 0.1f);
        break;
      case TensorType::kQ2_K:
        half(at + 80, 0.1f);
        half(at + 82, 0.1f);
        break;
      case TensorType::kQ3_K:
        half(at + 108, 0.1f);
        break;
      case TensorType::kQ6_K:
        half(at + 208, 0.1f);
        break;
      case TensorType::kTQ1_0:
        half(at + 52, 1);
        break;
      case TensorType::kTQ2_0:
        half(at + 64, 1);
        break;
      case TensorType::kIQ1_M:  // the top nibbles of four words are a half: 0x2??? is about 0.01
        out.memory[at + 55] = (out.memory[at + 55] & std::byte{0x0f}) | std::byte{0x20};
        break;
      case TensorType::kMXFP4:
        out.memory[at] = static_cast<std::byte>(124 + random() % 6);
        break;
      case TensorType::kNVFP4:
        for (int g = 0; g < 4; ++g) {
          out.memory[at + g] = static_cast<std::byte>(0x30 + random() % 16);
        }
        break;
      default:
        half(at, 0.1f);
    }
  }
  return out;
}

inline std::vector<float> Decoded(const Owned& weights, int64_t row) {
  std::vector<float> out(weights.tensor.cols);
  quant::DecodeRow(weights.tensor.type, weights.memory.data() + row * weights.tensor.row_bytes,
                   out.data(), weights.tensor.cols);
  return out;
}

// A sum in double precision and the sum of the magnitudes of its terms, which error bounds need.
struct DoubleDot {
  double value = 0;
  double magnitude = 0;
};
inline DoubleDot Dot(std::span<const float> a, const float* b) {
  DoubleDot out;
  for (size_t i = 0; i < a.size(); ++i) {
    const double term = static_cast<double>(a[i]) * b[i];
    out.value += term;
    out.magnitude += std::abs(term);
  }
  return out;
}

}  // namespace strata::compute::testing
