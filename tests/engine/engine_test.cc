// What a request may ask of the engine, and how requests end.
#include "services/compute/engine/engine.h"

#include <gtest/gtest.h>

#include <map>

#include "common/base/status.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/random_model.h"

namespace strata::compute {
namespace {

// Keeps blocks in memory, as a kvstore would.
class MemoryStore final : public StateStore {
 public:
  void Restore(const v1::RestorePlan& plan, std::string_view,
               absl::FunctionRef<bool(std::vector<std::byte>)> take) override {
    for (const v1::BlockRef& ref : plan.blocks()) {
      std::vector<std::byte> bytes;
      {
        const std::lock_guard lock(mutex_);
        const auto it = blocks_.find(ref.id());
        if (it == blocks_.end()) return;
        bytes = it->second.bytes;
      }
      if (!take(std::move(bytes))) return;
    }
  }
  void Save(SavedBlock block) override {
    const std::lock_guard lock(mutex_);
    blocks_[block.id.ToString()] = std::move(block);
  }
  bool connected() const override { return true; }

  // What kvstore's Plan would answer for these tokens.
  v1::RestorePlan Plan(const Runtime& runtime, std::span<const uint32_t> tokens) {
    const std::lock_guard lock(mutex_);
    v1::RestorePlan plan;
    state::BlockId id = state::RootId(runtime.fingerprint().hash(), runtime.layout().hash(), "");
    constexpr size_t kBlock = KvCache::kPageTokens;
    for (size_t first = 0; first + kBlock <= tokens.size(); first += kBlock) {
      id = state::ChildId(id, tokens.subspan(first, kBlock));
      const auto it = blocks_.find(id.ToString());
      if (it == blocks_.end()) break;
      v1::BlockRef& ref = *plan.add_blocks();
      ref.set_id(id.ToString());
      ref.set_first_token(static_cast<uint32_t>(first));
      ref.set_tokens(kBlock);
      plan.set_reused_tokens(static_cast<uint32_t>(first + kBlock));
    }
    return plan;
  }
  void DropAllBut(size_t count) {
    const std::lock_guard lock(mutex_);
    while (blocks_.size() > count) blocks_.erase(std::prev(blocks_.end()));
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, SavedBlock> blocks_;
};

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "engine_test.gguf";
    oracle::RandomModel shape;
    ASSERT_TRUE(oracle::WriteRandomModel(path_, shape).ok());
  }
  void Open(const v1::ComputeConfig& config) {
    auto runtime = OpenLocal(path_, config, &store_);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  Engine& engine() { return runtime_->engine(); }
  std::vector<uint32_t> Prompt(size_t n) {
    std::vector<uint32_t> p(n);
    for (size_t i = 0; i < n; ++i) p[i] = static_cast<uint32_t>(i * 37 % 128);
    return p;
  }
  std::string path_;
  MemoryStore store_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(EngineTest, EndsAtTheTokenLimit) {
  Open(SmallConfig());
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(Request(Prompt(10), 7), sink).ok());
  ASSERT_TRUE(sink->Wait().ok());
  EXPECT_EQ(sink->tokens().size(), 7u);
  EXPECT_EQ(sink->finish().reason(), v1::Finish::MAX_TOKENS);
  EXPECT_EQ(sink->finish().usage().prompt_tokens(), 10u);
  EXPECT_EQ(sink->finish().usage().completion_tokens(), 7u);
}

TEST_F(EngineTest, StopTokenEndsAndIsNotEmitted) {
  Open(SmallConfig());
  const auto answer = GenerateGreedy(engine(), Prompt(10), 7);
  ASSERT_TRUE(answer.ok());
  const uint32_t stop = (*answer)[4];
  const auto first = std::find(answer->begin(), answer->end(), stop) - answer->begin();
  v1::GenerateRequest request = Request(Prompt(10), 7);
  request.add_stop_token_ids(stop);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, sink).ok());
  ASSERT_TRUE(sink->Wait().ok());
  EXPECT_EQ(sink->tokens().size(), static_cast<size_t>(first));
  EXPECT_EQ(sink->finish().reason(), v1::Finish::STOP_TOKEN);
  EXPECT_EQ(sink->finish().stop_token_id(), stop);

  request.set_min_tokens(7);
  auto patient = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, patient).ok());
  ASSERT_TRUE(patient->Wait().ok());
  EXPECT_EQ(patient->tokens().size(), 7u) << "min_tokens forbids the stop token";
}

TEST_F(EngineTest, EndsWhenTheContextIsFull) {
  v1::ComputeConfig config = SmallConfig();
  config.set_context_length(64);
  Open(config);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(Request(Prompt(60), 0), sink).ok());
  ASSERT_TRUE(sink->Wait().ok());
  EXPECT_EQ(sink->tokens().size(), 4u);
  EXPECT_EQ(sink->finish().reason(), v1::Finish::CONTEXT_FULL);
}

TEST_F(EngineTest, BadRequestsAreRefusedWithTheirNumbers) {
  v1::ComputeConfig config = SmallConfig();
  config.set_context_length(64);
  Open(config);
  auto sink = std::make_shared<CollectingSink>();
  const auto message = [&](const v1::GenerateRequest& r) {
    const auto handle = engine().Generate(r, sink);
    EXPECT_EQ(handle.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(handle.status().message());
  };
  EXPECT_NE(message(Request(Prompt(64), 1)).find("64 tokens, the context holds 64"),
            std::string::npos);
  EXPECT_NE(message(Request({}, 1)).find("no tokens"), std::string::npos);
  const uint32_t outside[] = {1, 128};
  EXPECT_NE(message(Request(outside, 1)).find("token 128"), std::string::npos);
  v1::GenerateRequest hot = Request(Prompt(3), 1);
  hot.mutable_sampling()->set_temperature(-1);
  EXPECT_NE(message(hot).find("temperature"), std::string::npos);
}

TEST_F(EngineTest, CancelStopsReadingAndGenerating) {
  v1::ComputeConfig config = SmallConfig();
  config.set_chunk_tokens(1);
  Open(config);
  auto reading = std::make_shared<CollectingSink>();
  const auto first = engine().Generate(Request(Prompt(2000), 1), reading);
  ASSERT_TRUE(first.ok());
  auto generating = std::make_shared<CollectingSink>();
  const auto second = engine().Generate(Request(Prompt(1), 2000), generating);
  ASSERT_TRUE(second.ok());
  generating->WaitForTokens(3);
  engine().Cancel(*first);
  engine().Cancel(*second);
  EXPECT_TRUE(absl::IsCancelled(reading->Wait()));
  EXPECT_TRUE(absl::IsCancelled(generating->Wait()));
  EXPECT_LT(generating->tokens().size(), 2000u);
  EXPECT_EQ(engine().status().running, 0);
  EXPECT_EQ(engine().status().kv_pages_used, 0);
}

TEST_F(EngineTest, QueuedRequestsRunWhenMemoryIsFree) {
  v1::ComputeConfig config = SmallConfig();
  config.set_context_length(128);
  config.set_max_sequences(2);
  config.set_kv_bytes(1);                                              // replaced below: two pages
  const uint64_t page = 2ull * 2 * 2 * 64 * KvCache::kPageTokens * 2;  // layers, K and V, F16
  config.set_kv_bytes(2 * page);
  Open(config);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(engine().Generate(Request(Prompt(100), 20), sinks.back()).ok());
  }
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->Wait().ok());
    EXPECT_EQ(sink->tokens(), sinks[0]->tokens());
  }
}

TEST_F(EngineTest, SavedStateGivesTheSameAnswer) {
  Open(SmallConfig());
  const std::vector<uint32_t> prompt = Prompt(200);
  v1::GenerateRequest request = Request(prompt, 80);
  request.set_save_state(true);
  auto first = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, first).ok());
  ASSERT_TRUE(first->Wait().ok());
  EXPECT_EQ(store_.size(), 4u) << "279 computed tokens fill four blocks";

  *request.mutable_restore() = store_.Plan(*runtime_, prompt);
  EXPECT_EQ(request.restore().reused_tokens(), 192u);
  auto second = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, second).ok());
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->tokens(), first->tokens());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 192u);
  EXPECT_EQ(store_.size(), 4u);
}

TEST_F(EngineTest, ABlockThatIsGoneIsReadAgain) {
  Open(SmallConfig());
  const std::vector<uint32_t> prompt = Prompt(200);
  v1::GenerateRequest request = Request(prompt, 10);
  request.set_save_state(true);
  auto first = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, first).ok());
  ASSERT_TRUE(first->Wait().ok());
  *request.mutable_restore() = store_.Plan(*runtime_, prompt);
  store_.DropAllBut(0);
  auto second = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, second).ok());
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->tokens(), first->tokens());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 0u);
}

TEST_F(EngineTest, TheLastPromptTokenIsAlwaysComputed) {
  Open(SmallConfig());
  const std::vector<uint32_t> prompt = Prompt(128);  // exactly two blocks
  v1::GenerateRequest request = Request(prompt, 5);
  request.set_save_state(true);
  auto first = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, first).ok());
  ASSERT_TRUE(first->Wait().ok());
  *request.mutable_restore() = store_.Plan(*runtime_, prompt);
  EXPECT_EQ(request.restore().reused_tokens(), 128u);
  auto second = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, second).ok());
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->tokens(), first->tokens());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 64u);
}

TEST_F(EngineTest, StoppingEndsEverythingOnce) {
  Open(SmallConfig());
  auto running = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(Request(Prompt(10), 2000), running).ok());
  running->WaitForTokens(1);
  engine().StopAccepting();
  EXPECT_TRUE(absl::IsUnavailable(
      engine().Generate(Request(Prompt(3), 1), std::make_shared<CollectingSink>()).status()));
  runtime_.reset();
  EXPECT_TRUE(absl::IsCancelled(running->Wait()));
}

TEST_F(EngineTest, UnknownArchitectureListsTheKnownOnes) {
  const auto runtime = OpenLocal(path_ + ".none", SmallConfig());
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace strata::compute
