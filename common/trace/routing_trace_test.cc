#include "common/trace/routing_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

namespace strata::trace {
namespace {

class RoutingTraceTest : public testing::Test {
 protected:
  ~RoutingTraceTest() override { unlink(path_.c_str()); }

  RoutingTrace Random(uint32_t batches) {
    RoutingTrace trace{3, 300, 4, {}};
    for (uint32_t i = 0; i < batches; ++i) {
      Batch batch;
      batch.prompt = random_() % 2 == 0;
      batch.layer = static_cast<uint32_t>(random_() % 3);
      for (uint32_t e = 0; e < 300; ++e) {
        if (random_() % 40 != 0) continue;
        batch.uses.push_back({e, 1 + static_cast<uint32_t>(random_() % (1 << (random_() % 20)))});
      }
      if (batch.uses.empty()) batch.uses.push_back({299, UINT32_MAX});
      trace.batches.push_back(std::move(batch));
    }
    return trace;
  }
  std::string Written(const RoutingTrace& trace) {
    {
      const auto writer = Writer::Create(path_, trace.layers, trace.experts, trace.used).value();
      for (const Batch& b : trace.batches) writer->Write(b.prompt, b.layer, b.uses);
    }
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::mt19937 random_{7};
  const std::string path_ = testing::TempDir() + "routing_" + std::to_string(getpid());
};

TEST_F(RoutingTraceTest, ComesBackAsWritten) {
  const RoutingTrace trace = Random(200);
  const std::string bytes = Written(trace);
  const auto back = ReadFile(path_);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->layers, 3u);
  EXPECT_EQ(back->experts, 300u);
  EXPECT_EQ(back->used, 4u);
  EXPECT_EQ(back->batches, trace.batches);
}

TEST_F(RoutingTraceTest, ACutOffFileKeepsItsWholeRecords) {
  const RoutingTrace trace = Random(20);
  const std::string bytes = Written(trace);
  for (size_t size = bytes.find('\n') + 1; size < bytes.size(); ++size) {
    const auto back = Parse(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_LT(back->batches.size(), 20u);
    EXPECT_TRUE(std::equal(back->batches.begin(), back->batches.end(), trace.batches.begin()));
  }
}

TEST_F(RoutingTraceTest, DamageIsAnErrorOrAValidTrace) {
  const std::string bytes = Written(Random(10));
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i) damaged[random_() % damaged.size()] = static_cast<char>(random_());
    const auto back = Parse(damaged);
    if (!back.ok()) continue;
    for (const Batch& batch : back->batches) {
      ASSERT_LT(batch.layer, back->layers);
      ASSERT_FALSE(batch.uses.empty());
      for (size_t i = 0; i < batch.uses.size(); ++i) {
        ASSERT_LT(batch.uses[i].expert, back->experts);
        ASSERT_GT(batch.uses[i].tokens, 0u);
        if (i > 0) {
          ASSERT_LT(batch.uses[i - 1].expert, batch.uses[i].expert);
        }
      }
    }
  }
}

TEST_F(RoutingTraceTest, OtherFilesAreRefused) {
  for (const char* text : {"", "GGUF", "strata-routing-trace 2 1 1 1\n",
                           "strata-routing-trace 1 1 1", "strata-routing-trace 1 0 4 1\n",
                           "strata-routing-trace 1 4 4 5\n", "strata-routing-trace 1 4 4 2 x\n"}) {
    EXPECT_EQ(Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ReadFile("/nonexistent/trace").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(Writer::Create("/nonexistent/trace", 1, 1, 1).ok());
}

}  // namespace
}  // namespace strata::trace
