// What must hold for every table of kernels; without a back end, so that a test of another
// processor's kernels needs nothing but them, the formats and GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/quant/blocks.h"
#include "common/quant/float16.h"
#include "common/quant/weight_layout.h"
#include "services/compute/cpu/activations.h"
#include "services/compute/cpu/kernels.h"
#include "services/compute/cpu/test_tensors.h"

namespace strata::compute::testing {

// Activation rows in the form that a product wants, and the values that this form stands for.
struct PreparedRows {
  std::vector<std::vector<std::byte>> memory;
  std::vector<const std::byte*> rows;
  std::vector<std::vector<float>> values;
};

inline PreparedRows Prepare(const Kernels& k, ActivationForm form, const Owned& x) {
  const int64_t n = x.tensor.cols;
  PreparedRows out;
  for (int64_t r = 0; r < x.tensor.rows; ++r) {
    const float* from = x.Row(r);
    std::vector<float> values(from, from + n);
    std::vector<std::byte> memory(form == ActivationForm::kInt8x256 ? Int8Row256::Bytes(n)
                                                                    : Int8Row32::Bytes(n));
    if (form == ActivationForm::kF32) {
      memory.resize(static_cast<size_t>(n) * sizeof(float));
      std::memcpy(memory.data(), from, memory.size());
    } else if (form == ActivationForm::kInt8x256) {
      k.quantize256(from, n, memory.data());
      const Int8Row256 row = Int8Row256::At(memory.data(), n);
      for (int64_t i = 0; i < n; ++i) values[i] = row.d[i / 256] * row.q[i];
    } else {
      const bool quads = form == ActivationForm::kInt8x32Quads;
      (quads ? k.quantize32_quads : k.quantize32)(from, n, memory.data());
      const Int8Row32 row = Int8Row32::At(memory.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        // Of 16 values, value 4 b + a is at place 4 a + b.
        const int64_t place = quads ? i / 16 * 16 + i % 4 * 4 + i % 16 / 4 : i;
        values[i] = row.d[i / 32] * row.q[place];
      }
    }
    out.memory.push_back(std::move(memory));
    out.values.push_back(std::move(values));
  }
  for (const auto& memory : out.memory) out.rows.push_back(memory.data());
  return out;
}

// Runs one product over rows first .. first + count of `x`; the result has padded outputs.
inline Owned RunProduct(const Kernels& k, const Owned& w, const PreparedRows& x, int first,
                        int count) {
  Owned out = MakeTensor(TensorType::kF32, count,
                         (w.tensor.rows + kOutputsPadding - 1) / kOutputsPadding * kOutputsPadding);
  std::vector<std::byte> scratch(k.product_scratch(w.tensor.cols) + 64);
  ProductTile tile;
  tile.type = w.tensor.type;
  tile.weights = w.tensor.data;
  tile.weight_row_bytes = w.tensor.row_bytes;
  tile.outputs = static_cast<int>(w.tensor.rows);
  tile.inputs = w.tensor.cols;
  tile.rows = x.rows.data() + first;
  tile.row_count = count;
  tile.out = out.Row(0);
  tile.out_stride = out.tensor.cols;
  tile.scratch =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const auto& products = w.tensor.layout == quant::WeightLayout::kRows8 ? k.rows8 : k.product;
  products[static_cast<size_t>(w.tensor.type)](tile);
  return out;
}

inline Owned Interleaved(const Owned& w) {
  Owned out = w;
  quant::InterleaveRows(w.tensor.type, w.tensor.rows, w.tensor.row_bytes, w.memory.data(),
                        out.memory.data());
  out.tensor.layout = quant::WeightLayout::kRows8;
  return out;
}

// Products of every type: against double precision on the decoded weights and the activations as
// they were rounded, so that only the rounding of float sums is allowed; the same bits for one row
// as for many.
inline void CheckProducts(const Kernels& k) {
  constexpr int kRows = 19;
  constexpr int kOutputs = 21;
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (!IsWeightType(info.type)) continue;
    const int64_t cols = std::max<int64_t>(3 * info.block_values, 96);
    const Owned w = RandomWeights(info.type, kOutputs, cols, 1);
    const Owned floats = RandomFloats(kRows, cols, 2);
    const ActivationForm form = k.form[static_cast<size_t>(info.type)];
    const PreparedRows x = Prepare(k, form, floats);
    const Owned all = RunProduct(k, w, x, 0, kRows);
    for (int o = 0; o < kOutputs; ++o) {
      const std::vector<float> row = Decoded(w, o);
      float most = 0;
      for (const float v : row) most = std::max(most, std::abs(v));
      for (int r = 0; r < kRows; ++r) {
        double sum = 0;
        for (const float v : x.values[r]) sum += std::abs(v);
        // Each addition of floats may lose 2^-24 of what has been summed. With int8 activations
        // there are two for every 16 weights at most. 2: minima may be as large as what they
        // reduce.
        const double additions = form == ActivationForm::kF32 ? cols : cols / 8 + 8;
        const double allowed = 2 * most * sum * additions * 0x1p-24;
        ASSERT_NEAR(all.Row(r)[o], Dot(row, x.values[r].data()).value, allowed)
            << info.name << " output " << o << " row " << r;
      }
    }
    for (const int count : {1, 2, 3, 4, 7}) {
      const Owned some = RunProduct(k, w, x, 5, count);
      for (int r = 0; r < count; ++r) {
        ASSERT_TRUE(SameBits(some.Row(r), all.Row(5 + r), kOutputs))
            << info.name << ": " << count << " rows";
      }
    }
  }
}

// Products of interleaved rows: the same bits as of the rows apart, for every number of rows, with
// weights of any bits.
inline void CheckRows8(const Kernels& k) {
  constexpr int kRows = 11;
  constexpr int kOutputs = 24;  // no multiple of sixteen
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (k.rows8[static_cast<size_t>(info.type)] == nullptr) continue;
    const int64_t cols = 3 * info.block_values;
    const PreparedRows x =
        Prepare(k, k.form[static_cast<size_t>(info.type)], RandomFloats(kRows, cols, 2));
    for (const bool any_bits : {false, true}) {
      Owned w = RandomWeights(info.type, kOutputs, cols, 1);
      if (any_bits) {
        std::mt19937 random(3);
        for (std::byte& byte : w.memory) byte = static_cast<std::byte>(random());
      }
      const Owned interleaved = Interleaved(w);
      for (int count = 1; count <= kRows; ++count) {
        const Owned want = RunProduct(k, w, x, kRows - count, count);
        const Owned got = RunProduct(k, interleaved, x, kRows - count, count);
        for (int r = 0; r < count; ++r) {
          for (int o = 0; o < kOutputs; ++o) {
            if (std::isnan(want.Row(r)[o]) && std::isnan(got.Row(r)[o])) continue;
            ASSERT_TRUE(SameBits(got.Row(r) + o, want.Row(r) + o, 1))
                << info.name << ": output " << o << " of row " << r << " of " << count << ": "
                << got.Row(r)[o] << " instead of " << want.Row(r)[o];
          }
        }
      }
    }
  }
}

// Rounding to int8 loses half a step of the block at most.
inline void CheckQuantisation(const Kernels& k) {
  const Owned x = RandomFloats(3, 768, 3);
  for (const ActivationForm form :
       {ActivationForm::kInt8x32, ActivationForm::kInt8x32Quads, ActivationForm::kInt8x256}) {
    const int64_t block = form == ActivationForm::kInt8x256 ? 256 : 32;
    const PreparedRows rows = Prepare(k, form, x);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < 768; ++i) {
        float most = 0;
        for (int64_t j = i / block * block; j < (i / block + 1) * block; ++j) {
          most = std::max(most, std::abs(x.Row(r)[j]));
        }
        ASSERT_NEAR(rows.values[r][i], x.Row(r)[i], most / 254 * 1.001F);
      }
    }
  }
}

// Everything else, against the portable kernels.
inline void CheckFloatKernels(const Kernels& k) {
  const Kernels& reference = ScalarKernels();
  for (const int64_t n : {1, 3, 4, 37, 256}) {
    const Owned a = RandomFloats(3, n, 4);
    const Owned b = RandomFloats(1, n, 5);
    Owned got = b;
    Owned want = b;
    const auto same = [&](const char* what) {
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(got.Row(0)[i], want.Row(0)[i], 1e-5F + 1e-5F * std::abs(want.Row(0)[i]))
            << what << " " << n;
      }
    };
    k.add(a.Row(0), got.Row(0), n);
    reference.add(a.Row(0), want.Row(0), n);
    same("add");
    k.rms_norm(a.Row(0), b.Row(0), 1e-6F, n, got.Row(0));
    reference.rms_norm(a.Row(0), b.Row(0), 1e-6F, n, want.Row(0));
    same("rms_norm");
    k.swiglu(a.Row(0), b.Row(0), n, got.Row(0));
    reference.swiglu(a.Row(0), b.Row(0), n, want.Row(0));
    same("swiglu");
    const float weights[] = {0.5F, -0.25F, 2};
    k.combine(a.Row(0), n, weights, 3, n, got.Row(0));
    reference.combine(a.Row(0), n, weights, 3, n, want.Row(0));
    same("combine");
    std::vector<uint16_t> half(n);
    k.to_half(a.Row(0), n, half.data());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(half[i], quant::FloatToHalf(a.Row(0)[i]));
  }
}

// x as row `row` of a K/V tensor.
inline void StoreHead(Owned& to, int64_t row, const float* x, int64_t n) {
  std::byte* out = to.memory.data() + row * to.tensor.row_bytes;
  for (int64_t i = 0; i < n; ++i) {
    switch (to.tensor.type) {
      case TensorType::kF16:
        reinterpret_cast<uint16_t*>(out)[i] = quant::FloatToHalf(x[i]);
        break;
      case TensorType::kBF16:
        reinterpret_cast<uint16_t*>(out)[i] = quant::FloatToBf16(x[i]);
        break;
      case TensorType::kQ8_0: {
        auto& block = reinterpret_cast<quant::BlockQ8_0*>(out)[i / 32];
        block.d = quant::FloatToHalf(static_cast<float>(1 + i / 32) / 32);  // |x| < 4
        block.qs[i % 32] =
            static_cast<int8_t>(std::clamp(x[i] / quant::HalfToFloat(block.d), -127.0F, 127.0F));
        break;
      }
      default:
        reinterpret_cast<float*>(out)[i] = x[i];
        break;
    }
  }
}

inline void CheckAttention(const Kernels& k) {
  constexpr int kDim = 64;
  constexpr int kGroup = 3;
  constexpr int kTokens = 150;
  constexpr int kPage = 16;
  constexpr int kRows = 5;  // the last ones of the text
  const Owned keys = RandomFloats(kTokens, kDim, 6);
  const Owned values = RandomFloats(kTokens, kDim, 7);
  const Owned q = RandomFloats(kRows, kGroup * kDim, 8);
  const int32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0}) {
    for (const int window : {0, 20}) {
      Owned kv[2] = {keys, values};
      for (Owned& pool : kv) {
        Owned stored = MakeTensor(type, kTokens, kDim);
        for (int64_t t = 0; t < kTokens; ++t) StoreHead(stored, t, pool.Row(t), kDim);
        pool = stored;
      }
      Owned out[2] = {MakeTensor(TensorType::kF32, kRows, kGroup * kDim),
                      MakeTensor(TensorType::kF32, kRows, kGroup * kDim)};
      for (int side = 0; side < 2; ++side) {
        const Kernels& kernels = side == 0 ? k : ScalarKernels();
        const size_t bytes = kernels.attention_scratch(kDim, kRows * kGroup);
        std::vector<std::byte> scratch(bytes + 64);
        int32_t position[kRows];
        const float* queries[kRows];
        float* results[kRows];
        for (int r = 0; r < kRows; ++r) {
          position[r] = kTokens - kRows + r;
          queries[r] = q.Row(r);
          results[r] = out[side].Row(r);
        }
        AttentionTile tile = {};
        tile.head_dim = kDim;
        tile.group = kGroup;
        tile.scale = 0.125F;
        tile.window = window;
        tile.rows = kRows;
        tile.position = position;
        tile.q = queries;
        tile.out = results;
        tile.kv_type = type;
        tile.head_bytes = kv[0].tensor.row_bytes;
        tile.k = kv[0].memory.data();
        tile.v = kv[1].memory.data();
        tile.k_row_bytes = kv[0].tensor.row_bytes;
        tile.v_row_bytes = kv[1].tensor.row_bytes;
        tile.page_table = pages;
        tile.page_tokens = kPage;
        tile.scratch = reinterpret_cast<std::byte*>(
            (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
        kernels.attention(tile);
      }
      for (int64_t i = 0; i < kRows * kGroup * kDim; ++i) {
        ASSERT_NEAR(out[0].Row(0)[i], out[1].Row(0)[i], 1e-4F) << NameOf(type) << " " << window;
      }
    }
  }
}

}  // namespace strata::compute::testing
