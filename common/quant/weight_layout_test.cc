#include "common/quant/weight_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace strata::quant {
namespace {

std::vector<std::byte> RandomBytes(size_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(WeightLayout, ThereAndBack) {
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    for (const int64_t rows : {8, 24}) {
      for (const size_t blocks : {1, 3}) {
        const size_t row_bytes = blocks * info.block_bytes;
        const std::vector<std::byte> plain = RandomBytes(row_bytes * rows);
        std::vector<std::byte> interleaved(plain.size());
        InterleaveRows(info.type, rows, row_bytes, plain.data(), interleaved.data());
        std::vector<std::byte> back(plain.size());
        DeinterleaveRows(info.type, rows, row_bytes, interleaved.data(), back.data());
        ASSERT_EQ(back, plain) << info.name;
        // A block of a single element a row is where it was.
        ASSERT_EQ(interleaved == plain, blocks == 1 && info.block_bytes <= 4) << info.name;
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<std::byte> row(row_bytes);
          ExtractRow(info.type, r, row_bytes, interleaved.data(), row.data());
          ASSERT_TRUE(std::equal(row.begin(), row.end(), plain.begin() + r * row_bytes))
              << info.name << " row " << r;
        }
      }
    }
  }
}

// Where the header says that elements are.
TEST(WeightLayout, Places) {
  constexpr size_t kMxfp4 = 17;  // one byte, then words
  std::vector<std::byte> plain = RandomBytes(8 * 2 * kMxfp4);
  std::vector<std::byte> interleaved(plain.size());
  InterleaveRows(TensorType::kMXFP4, 8, 2 * kMxfp4, plain.data(), interleaved.data());
  const size_t block = 8 * kMxfp4;  // the second one
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_EQ(interleaved[block + r], plain[r * 2 * kMxfp4 + kMxfp4]);
    EXPECT_EQ(interleaved[block + 8 * 5 + 4 * r + 3], plain[r * 2 * kMxfp4 + kMxfp4 + 5 + 3]);
  }
  constexpr size_t kQ6K = 210;  // words, then two bytes
  plain = RandomBytes(8 * kQ6K);
  interleaved.resize(plain.size());
  InterleaveRows(TensorType::kQ6_K, 8, kQ6K, plain.data(), interleaved.data());
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_EQ(interleaved[8 * 16 + 4 * r], plain[r * kQ6K + 16]);
    EXPECT_EQ(interleaved[8 * 208 + 2 * r + 1], plain[r * kQ6K + 209]);
  }
}

}  // namespace
}  // namespace strata::quant
