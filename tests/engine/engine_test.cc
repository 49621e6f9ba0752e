// What a request may ask of the engine, and how requests end.
#include "services/compute/engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "common/base/status.h"
#include "common/base/test_folder.h"
#include "common/quant/decode.h"
#include "tests/engine/local_engine.h"
#include "tests/engine/memory_store.h"
#include "tests/oracle/random_model.h"

namespace strata::compute {
namespace {

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
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
  const TestFolder folder_;
  const std::string path_ = folder_ / "model.gguf";
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
  auto generating = std::make_shared<CollectingSink>(/*hold_at=*/3);
  const auto second = engine().Generate(Request(Prompt(1), 2000), generating);
  ASSERT_TRUE(second.ok());
  generating->WaitForTokens(3);
  engine().Cancel(*first);
  engine().Cancel(*second);
  generating->LetGo();
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
  EXPECT_EQ(store_.size(), 5u) << "279 computed tokens: four blocks, and a checkpoint of the rest";

  *request.mutable_restore() = store_.Plan(*runtime_, prompt);
  EXPECT_EQ(request.restore().reused_tokens(), 200u) << "all of the prompt: rows can be cut";
  auto second = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, second).ok());
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->tokens(), first->tokens());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 199u) << "the last token is computed";
  EXPECT_EQ(store_.size(), 5u);

  // The next turn: the answer's end is not read again either.
  std::vector<uint32_t> next = prompt;
  for (const uint32_t t : first->tokens()) next.push_back(t);
  next.resize(290, 5);
  const auto expected = GenerateGreedy(engine(), next, 20);
  ASSERT_TRUE(expected.ok());
  request = Request(next, 20);
  request.set_save_state(true);
  *request.mutable_restore() = store_.Plan(*runtime_, next);
  EXPECT_EQ(request.restore().reused_tokens(), 279u);
  EXPECT_TRUE(request.restore().tail().checkpoint());
  auto third = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, third).ok());
  ASSERT_TRUE(third->Wait().ok());
  EXPECT_EQ(third->tokens(), *expected);
  EXPECT_EQ(third->finish().usage().cached_tokens(), 279u);
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
  EXPECT_EQ(second->finish().usage().cached_tokens(), 127u);
}

// A tail that is not what the plan says is read instead.
TEST_F(EngineTest, ATailThatDoesNotFitIsRead) {
  Open(SmallConfig());
  const std::vector<uint32_t> prompt = Prompt(100);
  v1::GenerateRequest request = Request(prompt, 10);
  request.set_save_state(true);
  auto first = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, first).ok());
  ASSERT_TRUE(first->Wait().ok());
  const v1::RestorePlan plan = store_.Plan(*runtime_, prompt);
  ASSERT_EQ(plan.reused_tokens(), 100u);
  const auto cached_with = [&](const v1::RestorePlan& other) {
    *request.mutable_restore() = other;
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine().Generate(request, sink).ok());
    EXPECT_TRUE(sink->Wait().ok());
    EXPECT_EQ(sink->tokens(), first->tokens());
    return sink->finish().usage().cached_tokens();
  };
  EXPECT_EQ(cached_with(plan), 99u);
  v1::RestorePlan other = plan;
  other.set_reused_tokens(80);
  EXPECT_EQ(cached_with(other), 80u) << "cut";
  other.set_reused_tokens(10);
  EXPECT_EQ(cached_with(other), 64u) << "ends before it begins";
  other = plan;
  other.mutable_tail()->set_first_token(0);
  EXPECT_EQ(cached_with(other), 64u) << "of another place";
  other = plan;
  other.mutable_tail()->set_tokens(60);
  EXPECT_EQ(cached_with(other), 64u) << "of another size";
  other = plan;
  other.clear_blocks();
  EXPECT_EQ(cached_with(other), 0u) << "without what is before it";
}

// Two prompts with the same 300 tokens behind beginnings of 60 and 97 tokens.
class SpliceTest : public EngineTest {
 protected:
  static constexpr uint32_t kOldFirst = 60, kFirst = 97, kTokens = 250;
  void SetUp() override {
    EngineTest::SetUp();
    const std::vector<uint32_t> text = Prompt(300);
    old_prompt_.assign(kOldFirst, 5);
    prompt_.assign(kFirst, 9);
    for (std::vector<uint32_t>* prompt : {&old_prompt_, &prompt_}) {
      for (const uint32_t t : text) prompt->push_back(t);
    }
  }
  std::shared_ptr<CollectingSink> Answer(const std::vector<uint32_t>& prompt,
                                         const v1::RestorePlan& plan = {}, double budget = -1) {
    v1::GenerateRequest request = Request(prompt, 20);
    request.set_save_state(true);
    *request.mutable_restore() = plan;
    if (budget >= 0) request.set_splice_budget(static_cast<float>(budget));
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine().Generate(request, sink).ok());
    EXPECT_TRUE(sink->Wait().ok());
    return sink;
  }
  v1::RestorePlan Move(v1::SpliceMode mode) {
    return store_.Move(*runtime_, old_prompt_, kOldFirst, kTokens, kFirst, mode);
  }
  // The saved state of prompt_ of one lineage, page by page.
  std::vector<SavedBlock> SavedOf(state::Lineage lineage) {
    std::vector<SavedBlock> found(prompt_.size() / KvCache::kPageTokens);
    for (const auto& [id, block] : store_.blocks()) {
      const bool ours =
          std::equal(block.tokens.begin(), block.tokens.end(), prompt_.begin() + block.first_token);
      const size_t page = block.first_token / KvCache::kPageTokens;
      if (ours && block.lineage == lineage && page < found.size()) found[page] = block;
    }
    return found;
  }
  std::vector<uint32_t> old_prompt_, prompt_;
};

// The state of layer 0 depends on token and position alone: moved rows are what reading gives.
TEST_F(SpliceTest, MovedRowsEqualReadOnesInLayerZero) {
  for (const char* type : {"f32", "f16"}) {
    v1::ComputeConfig config = SmallConfig();
    config.set_kv_type(type);
    runtime_.reset();
    store_.DropAllBut(0);
    Open(config);
    Answer(old_prompt_);
    const auto spliced = Answer(prompt_, Move(v1::SPLICE_FAST));
    EXPECT_EQ(spliced->finish().usage().cached_tokens(), kTokens);
    EXPECT_EQ(spliced->finish().usage().spliced_tokens(), kTokens);
    Answer(prompt_);
    const std::vector<SavedBlock> moved = SavedOf(state::Lineage::kFast);
    const std::vector<SavedBlock> read = SavedOf(state::Lineage::kExact);
    EXPECT_TRUE(moved[0].bytes.empty()) << "the page before the run is exact";
    const v1::StateComponent& keys = runtime_->layout().components(0);
    const TensorType element = std::string(type) == "f32" ? TensorType::kF32 : TensorType::kF16;
    const size_t part = size_t{keys.row_bytes()} * KvCache::kPageTokens;
    const auto width = static_cast<int64_t>(part / (element == TensorType::kF32 ? 4 : 2));
    for (size_t page = 1; page < moved.size(); ++page) {
      ASSERT_FALSE(moved[page].bytes.empty()) << page;
      ASSERT_FALSE(read[page].bytes.empty()) << page;
      std::vector<float> a(static_cast<size_t>(width)), b(a);
      quant::DecodeRow(element, moved[page].bytes.data(), a.data(), width);
      quant::DecodeRow(element, read[page].bytes.data(), b.data(), width);
      for (size_t i = 0; i < a.size(); ++i) {
        const double step = element == TensorType::kF32 ? 2e-6 : 2e-3;
        ASSERT_NEAR(a[i], b[i], step * (1 + std::abs(b[i]))) << type << " page " << page;
      }
      EXPECT_EQ(std::memcmp(moved[page].bytes.data() + part, read[page].bytes.data() + part, part),
                0)
          << "values do not turn";
      EXPECT_NE(moved[page].bytes, read[page].bytes) << "layer 1 saw another text";
    }
  }
}

TEST_F(SpliceTest, ReadingEverythingAgainIsExact) {
  Open(SmallConfig());
  const auto expected = Answer(prompt_);
  store_.DropAllBut(0);
  Answer(old_prompt_);
  const auto again = Answer(prompt_, Move(v1::SPLICE_SAFE), 1);
  EXPECT_EQ(again->tokens(), expected->tokens());
  EXPECT_EQ(again->finish().usage().spliced_tokens(), 0u);
  EXPECT_EQ(again->finish().usage().cached_tokens(), 0u);
  for (const SavedBlock& block : SavedOf(state::Lineage::kExact)) {
    EXPECT_FALSE(block.bytes.empty()) << "nothing approximate is in it";
  }
}

TEST_F(SpliceTest, SafeReadsItsBudgetAgain) {
  Open(SmallConfig());
  Answer(old_prompt_);
  const auto safe = Answer(prompt_, Move(v1::SPLICE_SAFE), 0.2);
  EXPECT_EQ(safe->finish().usage().spliced_tokens(), kTokens - kTokens / 5);
  EXPECT_EQ(safe->finish().usage().cached_tokens(), kTokens - kTokens / 5);
  EXPECT_EQ(safe->tokens().size(), 20u);
  // What a chunk holds does not matter.
  v1::ComputeConfig config = SmallConfig();
  config.set_chunk_tokens(7);
  runtime_.reset();
  Open(config);
  EXPECT_EQ(Answer(prompt_, Move(v1::SPLICE_SAFE), 0.2)->tokens(), safe->tokens());
}

// The next turn of a spliced conversation goes on from its state and says that it is approximate.
TEST_F(SpliceTest, ASplicedConversationGoesOn) {
  Open(SmallConfig());
  Answer(old_prompt_);
  const auto first = Answer(prompt_, Move(v1::SPLICE_FAST));
  v1::RestorePlan plan;
  state::BlockId parent =
      state::RootId(runtime_->fingerprint().hash(), runtime_->layout().hash(), "");
  state::Lineage lineage = state::Lineage::kExact;
  for (uint32_t at = 0; at + KvCache::kPageTokens < prompt_.size(); at += KvCache::kPageTokens) {
    const auto own = std::span(prompt_).subspan(at, KvCache::kPageTokens);
    const auto next = at == 0 ? state::Lineage::kExact : state::Lineage::kFast;
    parent = state::ChildId(parent, lineage, next, own);
    lineage = next;
    v1::BlockRef& ref = *plan.add_blocks();
    ref.set_id(parent.ToString());
    ref.set_first_token(at);
    ref.set_tokens(KvCache::kPageTokens);
    ref.set_lineage(static_cast<v1::Lineage>(next));
  }
  plan.set_reused_tokens(384);
  const size_t stored = store_.size();
  const auto second = Answer(prompt_, plan);
  EXPECT_EQ(second->tokens(), first->tokens());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 384u);
  EXPECT_EQ(second->finish().usage().spliced_tokens(), 320u) << "all but the first page";
  EXPECT_EQ(store_.size(), stored) << "its blocks are known by the same names";
}

// Rows that are put back where they came from are the ones that are there.
TEST_F(SpliceTest, MovingByNothingIsExact) {
  Open(SmallConfig());
  const auto expected = Answer(old_prompt_);
  v1::RestorePlan plan = store_.Plan(*runtime_, old_prompt_);
  while (plan.blocks_size() > 1) plan.mutable_blocks()->RemoveLast();
  plan.set_reused_tokens(KvCache::kPageTokens);
  *plan.mutable_runs() = store_.Move(*runtime_, old_prompt_, 70, 200, 70, v1::SPLICE_FAST).runs();
  plan.set_splice(v1::SPLICE_FAST);
  const auto moved = Answer(old_prompt_, plan);
  EXPECT_EQ(moved->tokens(), expected->tokens());
  EXPECT_EQ(moved->finish().usage().cached_tokens(), 264u);
  EXPECT_EQ(moved->finish().usage().spliced_tokens(), 200u);
}

TEST_F(SpliceTest, WhatCannotBeMovedIsRead) {
  Open(SmallConfig());
  const auto expected = Answer(prompt_);
  store_.DropAllBut(0);
  Answer(old_prompt_);
  const auto is_exact = [&](const v1::RestorePlan& plan) {
    const auto sink = Answer(prompt_, plan);
    EXPECT_EQ(sink->tokens(), expected->tokens());
    EXPECT_EQ(sink->finish().usage().cached_tokens(), 0u);
  };
  v1::RestorePlan plan = Move(v1::SPLICE_OFF);
  is_exact(plan);
  plan = Move(v1::SPLICE_FAST);
  plan.mutable_runs(0)->set_tokens(300);  // to the last token
  is_exact(plan);
  plan = Move(v1::SPLICE_FAST);
  plan.mutable_runs(0)->mutable_blocks()->RemoveLast();
  is_exact(plan);
  plan = Move(v1::SPLICE_SAFE);
  store_.DropAllBut(0);
  is_exact(plan);
}

TEST_F(SpliceTest, CoarseKeysAreSavedAndRestoredButNotMoved) {
  for (const char* type : {"bf16", "q8_0"}) {
    v1::ComputeConfig config = SmallConfig();
    config.set_kv_type(type);
    runtime_.reset();
    store_.DropAllBut(0);
    Open(config);
    const auto expected = Answer(prompt_);
    const auto again = Answer(prompt_, store_.Plan(*runtime_, prompt_));
    EXPECT_EQ(again->tokens(), expected->tokens()) << type;
    EXPECT_GE(again->finish().usage().cached_tokens(), 300u) << type;
    store_.DropAllBut(0);
    Answer(old_prompt_);
    const auto moved = Answer(prompt_, Move(v1::SPLICE_FAST));
    EXPECT_EQ(moved->tokens(), expected->tokens()) << type;
    EXPECT_EQ(moved->finish().usage().spliced_tokens(), 0u) << type;
  }
}

TEST_F(EngineTest, UnknownKvTypeIsNamed) {
  v1::ComputeConfig config = SmallConfig();
  config.set_kv_type("q3");
  const auto runtime = OpenLocal(path_, config);
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(runtime.status().message().find("q8_0"), absl::string_view::npos) << runtime.status();
}

TEST_F(EngineTest, StoppingEndsEverythingOnce) {
  Open(SmallConfig());
  auto running = std::make_shared<CollectingSink>(/*hold_at=*/1);
  ASSERT_TRUE(engine().Generate(Request(Prompt(10), 2000), running).ok());
  running->WaitForTokens(1);
  engine().StopAccepting();
  EXPECT_TRUE(absl::IsUnavailable(
      engine().Generate(Request(Prompt(3), 1), std::make_shared<CollectingSink>()).status()));
  running->LetGo();
  runtime_.reset();
  EXPECT_TRUE(absl::IsCancelled(running->Wait()));
}

TEST_F(EngineTest, UnknownArchitectureListsTheKnownOnes) {
  const auto runtime = OpenLocal(path_ + ".none", SmallConfig());
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace strata::compute
