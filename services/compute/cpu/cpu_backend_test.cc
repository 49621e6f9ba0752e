// All operations but the products, against straightforward double-precision code.
#include "services/compute/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "common/quant/decode.h"
#include "services/compute/cpu/test_backends.h"
#include "services/compute/cpu/test_tensors.h"

namespace strata::compute {
namespace {

using testing::MakeBackend;
using testing::MakeTensor;
using testing::Owned;
using testing::RandomFloats;
using testing::RandomWeights;

constexpr TensorType kF32 = TensorType::kF32;

TEST(CpuBackend, RefusesBadOptionsAndWeights) {
  EXPECT_THAT(CreateCpuBackend({.isa = "sse9"}).status().message(), ::testing::HasSubstr("sse9"));
  EXPECT_FALSE(CreateCpuBackend({.threads = -1}).ok());
  EXPECT_FALSE(CreateCpuBackend({.spin_us = -1}).ok());
  const auto backend = MakeBackend("auto", 1);
  ASSERT_NE(backend, nullptr);
  const std::vector<std::byte> bytes(144 * 4);
  EXPECT_TRUE(backend->LoadWeight(bytes, TensorType::kQ4_K, 4, 256).ok());
  EXPECT_FALSE(backend->LoadWeight(bytes, TensorType::kQ4_K, 5, 256).ok());
  EXPECT_FALSE(backend->LoadWeight(bytes, TensorType::kQ4_K, 4, 250).ok());
  EXPECT_FALSE(backend->LoadWeight(bytes, TensorType::kQ4_K, -4, 256).ok());
  EXPECT_FALSE(backend->Allocate(size_t{1} << 62, "a test").ok());
  const auto buffer = backend->Allocate(1000, "a test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(std::all_of((*buffer)->data(), (*buffer)->data() + 1000,
                          [](std::byte b) { return b == std::byte{0}; }));
}

class Ops : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> Make(int threads = 2) const { return MakeBackend(GetParam(), threads); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Ops, ::testing::ValuesIn(testing::AvailableIsas()), testing::IsaName);

TEST_P(Ops, EmbedAndGather) {
  const Owned table = RandomWeights(TensorType::kQ6_K, 20, 512, 1);
  const std::vector<int32_t> ids = {3, 19, 0, 3};
  const Owned out = MakeTensor(kF32, 4, 512);
  const auto backend = Make();
  backend->EmbedRows(table.tensor, ids, out.tensor);
  for (size_t t = 0; t < ids.size(); ++t) {
    EXPECT_EQ(testing::Decoded(table, ids[t]), std::vector<float>(out.Row(t), out.Row(t) + 512));
  }
  const std::vector<int32_t> rows = {2, 2, 1};
  const Owned gathered = MakeTensor(kF32, 3, 512);
  backend->GatherRows(out.tensor, rows, gathered.tensor);
  for (size_t t = 0; t < rows.size(); ++t) {
    EXPECT_TRUE(testing::SameBits(gathered.Row(t), out.Row(rows[t]), 512));
  }
}

TEST_P(Ops, AddNormSwiGlu) {
  for (const int64_t cols : {1, 3, 16, 33, 1000}) {
    const Owned x = RandomFloats(50, cols, 1);
    const Owned y = RandomFloats(50, cols, 2);
    const Owned weight = RandomFloats(1, cols, 3);
    const auto backend = Make();
    Owned sum_copy = y;
    backend->Add(x.tensor, sum_copy.tensor);
    const Owned norm = MakeTensor(kF32, 50, cols);
    backend->RmsNorm(x.tensor, weight.tensor, 1e-5f, norm.tensor);
    const Owned glu = MakeTensor(kF32, 50, cols);
    backend->SwiGlu(x.tensor, y.tensor, glu.tensor);
    for (int64_t t = 0; t < 50; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += static_cast<double>(x.Row(t)[i]) * x.Row(t)[i];
      for (int64_t i = 0; i < cols; ++i) {
        EXPECT_EQ(sum_copy.Row(t)[i], x.Row(t)[i] + y.Row(t)[i]);
        const double n = x.Row(t)[i] / std::sqrt(squares / cols + 1e-5f) * weight.Row(0)[i];
        EXPECT_NEAR(norm.Row(t)[i], n, std::abs(n) * 1e-6 * (2 + cols / 64.0));
        const double g = x.Row(t)[i];
        const double s = g / (1 + std::exp(-g)) * y.Row(t)[i];
        EXPECT_NEAR(glu.Row(t)[i], s, std::abs(s) * 2e-6 + 1e-30);
      }
    }
    // In place, and one row at a time: the same bits.
    Owned in_place = x;
    backend->RmsNorm(in_place.tensor, weight.tensor, 1e-5f, in_place.tensor);
    EXPECT_EQ(in_place.memory, norm.memory);
    Owned glu_in_place = x;
    for (int64_t t = 0; t < 50; ++t) {
      const Tensor row = glu_in_place.tensor.Rows(t, 1);
      backend->SwiGlu(row, y.tensor.Rows(t, 1), row);
    }
    EXPECT_EQ(glu_in_place.memory, glu.memory);
  }
}

TEST_P(Ops, SwiGluOfExtremeGates) {
  Owned gate = MakeTensor(kF32, 1, 24);
  Owned up = MakeTensor(kF32, 1, 24);
  const std::vector<float> gates = {-1e30f, -200, -104, -90, -88, -87, 87, 88, 90, 104, 200, 1e30f};
  for (int i = 0; i < 24; ++i) {
    gate.Row(0)[i] = gates[i % 12];
    up.Row(0)[i] = 1;
  }
  Make()->SwiGlu(gate.tensor, up.tensor, up.tensor);
  for (int i = 0; i < 24; ++i) {
    const double g = gates[i % 12];
    const double expected = g / (1 + std::exp(-g));
    EXPECT_NEAR(up.Row(0)[i], expected, std::abs(expected) * 1e-5 + 1e-35) << g;
  }
}

TEST_P(Ops, RopeAtHighPositions) {
  const std::vector<int32_t> positions = {0, 1, 1000, 1000003};
  Owned frequency = MakeTensor(kF32, 1, 32);
  for (int i = 0; i < 32; ++i) {
    frequency.Row(0)[i] = static_cast<float>(std::pow(10000.0, -i / 32.0));
  }
  const Owned table = MakeTensor(kF32, 4, 64);
  const auto backend = Make();
  backend->RopeTable(positions, frequency.tensor, 1.5f, table.tensor);
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(positions[t]) * frequency.Row(0)[i];
      EXPECT_NEAR(table.Row(t)[2 * i], 1.5 * std::cos(angle), 2e-7);
      EXPECT_NEAR(table.Row(t)[2 * i + 1], 1.5 * std::sin(angle), 2e-7);
    }
  }
  // Three heads of 80, of which 64 values are rotated; with and without the norm.
  const Owned x = RandomFloats(4, 240, 5);
  const Owned weight = RandomFloats(1, 80, 6);
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    for (const bool norm : {false, true}) {
      Owned y = x;
      backend->NormRope(y.tensor, 80, norm ? weight.tensor : Tensor{}, 1e-6f, table.tensor, style);
      for (int t = 0; t < 4; ++t) {
        for (int h = 0; h < 3; ++h) {
          std::vector<double> head(80);
          double squares = 0;
          for (int i = 0; i < 80; ++i) {
            head[i] = x.Row(t)[h * 80 + i];
            squares += head[i] * head[i];
          }
          if (norm) {
            for (int i = 0; i < 80; ++i) {
              head[i] = head[i] / std::sqrt(squares / 80 + 1e-6f) * weight.Row(0)[i];
            }
          }
          for (int i = 0; i < 32; ++i) {
            const int a = style == RopeStyle::kInterleaved ? 2 * i : i;
            const int b = style == RopeStyle::kInterleaved ? 2 * i + 1 : i + 32;
            const double c = table.Row(t)[2 * i];
            const double s = table.Row(t)[2 * i + 1];
            EXPECT_NEAR(y.Row(t)[h * 80 + a], head[a] * c - head[b] * s, 4e-6);
            EXPECT_NEAR(y.Row(t)[h * 80 + b], head[a] * s + head[b] * c, 4e-6);
          }
          for (int i = 64; i < 80; ++i) EXPECT_NEAR(y.Row(t)[h * 80 + i], head[i], 4e-6);
        }
      }
    }
  }
}

TEST_P(Ops, RouteOrderTiesAndNonsense) {
  const auto backend = Make();
  Owned logits = MakeTensor(kF32, 4, 8);
  const float rows[4][8] = {{1, 3, 2, 3, 0, -1, 2, 3},
                            {0, 0, 0, 0, 0, 0, 0, 0},
                            {NAN, -INFINITY, NAN, 1, NAN, NAN, NAN, NAN},
                            {1e30f, -1e30f, 1e30f, 0, 0, 0, 0, 5}};
  std::memcpy(logits.Row(0), rows, sizeof(rows));
  for (const bool normalize : {false, true}) {
    const Owned ids = MakeTensor(TensorType::kI32, 4, 4);
    const Owned weights = MakeTensor(kF32, 4, 4);
    backend->Route(logits.tensor, 4, normalize, ids.tensor, weights.tensor);
    const auto chosen = [&](int t) {
      const auto* row = reinterpret_cast<const int32_t*>(ids.Row(t));
      return std::vector<int32_t>(row, row + 4);
    };
    EXPECT_EQ(chosen(0), (std::vector<int32_t>{1, 3, 7, 2}));
    EXPECT_EQ(chosen(1), (std::vector<int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(chosen(2), (std::vector<int32_t>{3, 0, 1, 2}));
    EXPECT_EQ(chosen(3), (std::vector<int32_t>{0, 2, 1, 3}));
    double sum = 0;
    for (const float v : rows[0]) sum += std::exp(v);
    const double kept = 3 * std::exp(3.0) + std::exp(2.0);
    const double total = normalize ? kept : sum;
    EXPECT_NEAR(weights.Row(0)[0], std::exp(3.0) / total, 1e-6);
    EXPECT_NEAR(weights.Row(0)[3], std::exp(2.0) / total, 1e-6);
    EXPECT_EQ(weights.Row(2)[0], 1);
    EXPECT_EQ(weights.Row(2)[1], 0);
  }
}

TEST_P(Ops, CombineAddsInOrder) {
  const Owned experts = RandomFloats(6, 37, 1);
  const Owned weights = RandomFloats(2, 3, 2);
  const Owned before = RandomFloats(2, 37, 3);
  Owned y = before;
  Make()->CombineExperts(experts.tensor, weights.tensor, y.tensor);
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < 37; ++i) {
      double sum = before.Row(t)[i];
      for (int j = 0; j < 3; ++j) {
        sum += static_cast<double>(weights.Row(t)[j]) * experts.Row(t * 3 + j)[i];
      }
      EXPECT_NEAR(y.Row(t)[i], sum, 2e-6);
    }
  }
}

// Two sequences with shuffled pages. Rows may come in any mixture; every row is compared with
// double precision, and its bits with those of a call of its own.
// Keys stored for one place and turned on are those stored for the other place.
TEST_P(Ops, RotatedKeysAreThoseOfTheOtherPlace) {
  constexpr int kRows = 7;
  constexpr int kHeads = 3;
  constexpr int kHead = 20;  // of which 12 dimensions are rotated
  Owned frequency = MakeTensor(kF32, 1, 6);
  for (int i = 0; i < 6; ++i) frequency.Row(0)[i] = std::pow(10000.0f, -i / 6.0f);
  const auto backend = Make();
  const Owned x = RandomFloats(kRows, kHeads * kHead, 8);
  const std::vector<int32_t> slots = {9, 2, 0, 5, 1, 8, 3};
  for (const TensorType type : {kF32, TensorType::kF16}) {
    for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
      for (const int shift : {-1234, -1, 1, 40000}) {
        const auto stored_at = [&](int first) {
          Owned k = MakeTensor(type, 10, kHeads * kHead);
          const Owned v = MakeTensor(type, 10, kHeads * kHead);
          Owned turned = x;
          std::vector<int32_t> positions(kRows);
          std::iota(positions.begin(), positions.end(), first);
          const Owned table = MakeTensor(kF32, kRows, 12);
          backend->RopeTable(positions, frequency.tensor, 1.25f, table.tensor);
          backend->NormRope(turned.tensor, kHead, {}, 0, table.tensor, style);
          backend->StoreKv(turned.tensor, turned.tensor, slots,
                           {k.tensor, v.tensor, 10, kHeads, kHead});
          return k;
        };
        const Owned moved = stored_at(50'000);
        const Owned expected = stored_at(50'000 + shift);
        const Owned before = moved;
        const Owned table = MakeTensor(kF32, 1, 12);
        backend->RopeTable(std::vector<int32_t>{shift}, frequency.tensor, 1, table.tensor);
        backend->RotateKeys({moved.tensor, moved.tensor, 10, kHeads, kHead}, slots, table.tensor,
                            style);
        const auto value = [&](const Owned& k, int64_t row, int64_t i) {
          float out[kHeads * kHead];
          quant::DecodeRow(type, k.tensor.data + row * k.tensor.row_bytes, out, kHeads * kHead);
          return out[i];
        };
        const double step = type == kF32 ? 2e-6 : 4e-3;  // angles in F32; two roundings to halves
        for (int64_t row = 0; row < 10; ++row) {
          const bool listed = std::find(slots.begin(), slots.end(), row) != slots.end();
          for (int64_t i = 0; i < kHeads * kHead; ++i) {
            EXPECT_NEAR(value(moved, row, i), value(expected, row, i), step);
            if (!listed || i % kHead >= 12) {
              EXPECT_EQ(value(moved, row, i), value(before, row, i));
            }
          }
        }
      }
    }
  }
}

// Half a step of the type: 2^-11 and 2^-8 of the value, 1/254 of the largest of 32, and what
// rounding the scale to a half adds.
TEST_P(Ops, StoresRoundedKeysAndValues) {
  const auto backend = Make();
  const Owned x = RandomFloats(3, 64, 11);
  for (const TensorType type : {kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0}) {
    const Owned k = MakeTensor(type, 4, 64);
    const Owned v = MakeTensor(type, 4, 64);
    const std::vector<int32_t> slots = {2, 0, 3};
    backend->StoreKv(x.tensor, x.tensor, slots, {k.tensor, v.tensor, 4, 2, 32});
    for (int t = 0; t < 3; ++t) {
      float got[64];
      quant::DecodeRow(type, k.tensor.data + slots[t] * k.tensor.row_bytes, got, 64);
      EXPECT_EQ(std::memcmp(k.tensor.data + slots[t] * k.tensor.row_bytes,
                            v.tensor.data + slots[t] * v.tensor.row_bytes, k.tensor.row_bytes),
                0);
      for (int i = 0; i < 64; ++i) {
        const float value = x.Row(t)[i];
        float most = 0;
        for (int j = 0; j < 32; ++j) most = std::max(most, std::abs(x.Row(t)[i / 32 * 32 + j]));
        const float step = type == kF32                ? 0
                           : type == TensorType::kF16  ? std::abs(value) * 0x1p-11F
                           : type == TensorType::kBF16 ? std::abs(value) * 0x1p-8F
                                                       : most * (0x1p-11F + 1 / 254.0F);
        EXPECT_NEAR(got[i], value, step + 1e-7F) << NameOf(type);
      }
    }
  }
}

// Values that Q8_0 cannot say: blocks of zeros, denormals, and what is not finite.
TEST_P(Ops, StoresBlocksOfExtremeValues) {
  const auto backend = Make();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float extreme : {0.0F, 1e-40F, 1e-7F, 3e38F, kInf, -kInf, std::nanf("")}) {
    Owned x = MakeTensor(kF32, 1, 64);
    std::fill_n(x.Row(0), 64, 1.0F);
    std::fill_n(x.Row(0), 32, 0.0F);
    x.Row(0)[5] = extreme;
    const Owned k = MakeTensor(TensorType::kQ8_0, 1, 64);
    const Owned v = MakeTensor(TensorType::kQ8_0, 1, 64);
    backend->StoreKv(x.tensor, x.tensor, std::vector<int32_t>{0}, {k.tensor, v.tensor, 1, 2, 32});
    float got[64];
    quant::DecodeRow(TensorType::kQ8_0, k.tensor.data, got, 64);
    if (std::abs(extreme) < 1) {
      EXPECT_NEAR(got[5], extreme, 1e-7F);
    } else {
      EXPECT_FALSE(std::isfinite(got[5])) << extreme;
    }
    for (int i = 32; i < 64; ++i) EXPECT_NEAR(got[i], 1, 1e-3F) << "the next block is untouched";
  }
}

struct AttentionCase {
  TensorType type;
  int head_dim;
  int heads;
  int kv_heads;
  int page_tokens;
  int window;
};

class AttentionTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest, ::testing::ValuesIn(testing::AvailableIsas()),
                         testing::IsaName);

TEST_P(AttentionTest, MatchesDoublePrecisionAndItself) {
  for (const AttentionCase& c : {AttentionCase{TensorType::kF16, 64, 8, 2, 16, 0},
                                 AttentionCase{TensorType::kF32, 128, 4, 4, 64, 0},
                                 AttentionCase{TensorType::kF16, 128, 8, 1, 8, 50},
                                 AttentionCase{TensorType::kF32, 20, 6, 2, 10, 7},
                                 AttentionCase{TensorType::kF16, 80, 3, 3, 5, 1},
                                 AttentionCase{TensorType::kBF16, 128, 8, 2, 16, 0},
                                 AttentionCase{TensorType::kBF16, 20, 6, 2, 10, 7},
                                 AttentionCase{TensorType::kQ8_0, 128, 8, 1, 8, 0},
                                 AttentionCase{TensorType::kQ8_0, 96, 6, 2, 16, 40}}) {
    constexpr int kTokens = 300;
    const auto backend = MakeBackend(GetParam(), 2);
    const int pages = (kTokens + c.page_tokens - 1) / c.page_tokens;
    KvPool pool;
    const int64_t width = c.kv_heads * c.head_dim;
    const Owned k_pool = MakeTensor(c.type, 2 * pages * c.page_tokens, width);
    const Owned v_pool = MakeTensor(c.type, 2 * pages * c.page_tokens, width);
    pool.k = k_pool.tensor;
    pool.v = v_pool.tensor;
    pool.page_tokens = c.page_tokens;
    pool.kv_heads = c.kv_heads;
    pool.head_dim = c.head_dim;
    std::vector<int32_t> order(2 * pages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    const std::vector<std::vector<int32_t>> tables = {{order.begin(), order.begin() + pages},
                                                      {order.begin() + pages, order.end()}};
    const std::vector<std::span<const int32_t>> page_tables = {tables[0], tables[1]};
    std::vector<Owned> keys;
    std::vector<Owned> values;
    for (int s = 0; s < 2; ++s) {
      keys.push_back(RandomFloats(kTokens, width, 10 + s));
      values.push_back(RandomFloats(kTokens, width, 20 + s));
      std::vector<int32_t> slots(kTokens);
      for (int t = 0; t < kTokens; ++t) {
        slots[t] = tables[s][t / c.page_tokens] * c.page_tokens + t % c.page_tokens;
      }
      backend->StoreKv(keys[s].tensor, values[s].tensor, slots, pool);
    }

    std::vector<int32_t> sequence;
    std::vector<int32_t> position;
    for (int t = kTokens - 50; t < kTokens; ++t) {
      sequence.push_back(0);
      position.push_back(t);
    }
    for (const int p : {0, kTokens - 1, 5, 31, 127, 128}) {
      sequence.push_back(1);
      position.push_back(p);
    }
    const auto rows = static_cast<int64_t>(sequence.size());
    const Owned q = RandomFloats(rows, c.heads * c.head_dim, 30);
    const Owned out = MakeTensor(kF32, rows, c.heads * c.head_dim);
    const float scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
    backend->Attention(q.tensor, {sequence, position, page_tables}, pool, scale, c.window,
                       out.tensor);

    // What StoreKv must have made of the floats; StoresRoundedKeysAndValues says how near that is.
    for (std::vector<Owned>* side : {&keys, &values}) {
      const Tensor& stored = side == &keys ? pool.k : pool.v;
      for (int s = 0; s < 2; ++s) {
        for (int t = 0; t < kTokens; ++t) {
          const int64_t slot = tables[s][t / c.page_tokens] * c.page_tokens + t % c.page_tokens;
          quant::DecodeRow(c.type, stored.data + slot * stored.row_bytes, (*side)[s].Row(t), width);
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int h = 0; h < c.heads; ++h) {
        const int kv = h / (c.heads / c.kv_heads) * c.head_dim;
        const int first = c.window > 0 ? std::max(0, position[r] - c.window + 1) : 0;
        std::vector<double> p;
        for (int t = first; t <= position[r]; ++t) {
          double dot = 0;
          for (int d = 0; d < c.head_dim; ++d) {
            dot += static_cast<double>(q.Row(r)[h * c.head_dim + d]) *
                   keys[sequence[r]].Row(t)[kv + d];
          }
          p.push_back(dot * scale);
        }
        const double max = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& v : p) sum += v = std::exp(v - max);
        for (int d = 0; d < c.head_dim; ++d) {
          double expected = 0;
          for (size_t i = 0; i < p.size(); ++i) {
            expected += p[i] / sum * values[sequence[r]].Row(first + i)[kv + d];
          }
          ASSERT_NEAR(out.Row(r)[h * c.head_dim + d], expected, 5e-6)
              << "head_dim " << c.head_dim << " row " << r << " head " << h;
        }
      }
    }

    for (const int threads : {1, 3}) {
      const auto other = MakeBackend(GetParam(), threads);
      for (int64_t r = 0; r < rows; ++r) {
        const Owned one = MakeTensor(kF32, 1, c.heads * c.head_dim);
        const AttentionRows single{{&sequence[r], 1}, {&position[r], 1}, page_tables};
        other->Attention(q.tensor.Rows(r, 1), single, pool, scale, c.window, one.tensor);
        ASSERT_TRUE(testing::SameBits(one.Row(0), out.Row(r), one.tensor.cols))
            << "row " << r << " threads " << threads;
      }
    }
  }
}

// Later tokens of the same call are in the tile of an earlier row, and may hold anything.
TEST_P(AttentionTest, WhatARowDoesNotSeeDoesNotCount) {
  constexpr int kTokens = 70;
  constexpr int kDim = 64;
  constexpr int kRows = 20;
  const auto backend = MakeBackend(GetParam(), 1);
  std::vector<int32_t> slots(kTokens);
  std::iota(slots.begin(), slots.end(), 0);
  const std::vector<int32_t> sequence(kRows);
  const std::vector<std::span<const int32_t>> page_tables = {std::span(slots).first(1)};
  const Owned q = RandomFloats(kRows, 3 * kDim, 1);
  for (const int window : {0, 10}) {
    Owned out[2] = {MakeTensor(kF32, kRows, 3 * kDim), MakeTensor(kF32, kRows, 3 * kDim)};
    for (const bool poisoned : {false, true}) {
      Owned k = RandomFloats(kTokens, kDim, 2);
      Owned v = RandomFloats(kTokens, kDim, 3);
      for (int t = poisoned ? kTokens - 2 : kTokens; t < kTokens; ++t) {
        std::fill_n(k.Row(t), kDim, std::numeric_limits<float>::quiet_NaN());
        std::fill_n(v.Row(t), kDim, std::numeric_limits<float>::infinity());
      }
      backend->Attention(q.tensor, {sequence, std::span(slots).last(kRows), page_tables},
                         {k.tensor, v.tensor, kTokens, 1, kDim}, 0.125F, window,
                         out[poisoned].tensor);
    }
    EXPECT_TRUE(testing::SameBits(out[0].Row(0), out[1].Row(0), (kRows - 2) * 3 * kDim)) << window;
    EXPECT_TRUE(std::isnan(out[1].Row(kRows - 2)[0]));
  }
}

}  // namespace
}  // namespace strata::compute
