// Whatever happens to the state of conversations (saved, restored, shared, cut, moved, evicted,
// lost in a crash): what is exact stays equal, bit by bit, to what reading gives.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>

#include "common/base/test_folder.h"
#include "tests/engine/local_engine.h"
#include "tests/engine/memory_store.h"
#include "tests/oracle/random_model.h"

namespace strata::compute {
namespace {

using Tokens = std::vector<uint32_t>;
constexpr size_t kBlock = KvCache::kPageTokens;

// A store that forgets when told to, and a record of everything that was ever saved.
class RecordingStore final : public StateStore {
 public:
  void Restore(const v1::RestorePlan& plan, std::string_view request_id,
               absl::FunctionRef<bool(std::vector<std::byte>)> take) override {
    memory.Restore(plan, request_id, take);
  }
  void Save(SavedBlock block) override {
    record.Save(block);
    memory.Save(std::move(block));
  }
  bool connected() const override { return true; }
  MemoryStore memory, record;
};

// Holds the engine at its `count`-th token until it is let go.
class HoldingSink final : public GenerateSink {
 public:
  explicit HoldingSink(int count) : count_(count) {}
  void OnProgress(const v1::Progress&) override {}
  void OnTokens(const v1::TokenBatch&) override {
    std::unique_lock lock(mutex_);
    if (++tokens_ != count_) return;
    held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return let_go_; });
    let_go_ = false;
  }
  void OnFinish(const absl::Status&, const v1::Finish&) override {}
  void WaitUntilHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  // On to the token where it stops again, or for good.
  void LetGo(int next_count) {
    const std::lock_guard lock(mutex_);
    count_ = next_count;
    held_ = false;
    let_go_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_;
  int tokens_ = 0;
  bool held_ = false;
  bool let_go_ = false;
};

class StatePropertyTest : public testing::Test {
 protected:
  void SetUp() override {
    oracle::RandomModel shape;
    shape.embedding = 64;
    shape.feed_forward = 64;
    shape.head_dim = 16;
    ASSERT_TRUE(oracle::WriteRandomModel(path_, shape).ok());
    Open();
  }
  void Open() {
    v1::ComputeConfig config = SmallConfig();
    config.set_context_length(kPages * kBlock);
    config.set_max_sequences(3);
    config.set_kv_bytes(kPages * kBlock * 2 * 2 * 2 * 16 * 2);
    auto runtime = OpenLocal(path_, config, &stores_, /*share_kv=*/true);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  // Text `kind` of any length: different from the first token on.
  static Tokens Text(uint32_t kind, size_t size) {
    Tokens text(size);
    for (size_t i = 0; i < size; ++i) {
      text[i] = static_cast<uint32_t>((i * (37 + 2 * kind) + kind * 11 + i / 90) % 128);
    }
    return text;
  }
  std::shared_ptr<CollectingSink> Start(const Tokens& prompt, const v1::RestorePlan& plan,
                                        uint32_t tokens) {
    v1::GenerateRequest request = Request(prompt, tokens);
    request.set_save_state(true);
    *request.mutable_restore() = plan;
    auto sink = std::make_shared<CollectingSink>();
    const auto handle = runtime_->engine().Generate(request, sink);
    EXPECT_TRUE(handle.ok()) << handle.status();
    last_ = handle.ok() ? *handle : 0;
    return sink;
  }
  // Reads every text whose exact state was saved with an engine that reuses nothing, and compares.
  // Returns the number of blocks and checkpoints.
  size_t CompareWithReading() {
    const auto saved = stores_.record.blocks();
    std::map<std::string, std::string> child;  // of exact blocks: is there one?
    for (const auto& [id, block] : saved) {
      if (block.lineage == state::Lineage::kExact) child[block.parent.ToString()] = id;
    }
    MemoryStore read;
    auto reader = OpenLocal(path_, SmallConfig(), &read);
    EXPECT_TRUE(reader.ok());
    for (const auto& [id, block] : saved) {
      if (block.lineage != state::Lineage::kExact || child.contains(id)) continue;
      Tokens text;
      const SavedBlock* at = &block;
      for (;;) {
        text.insert(text.begin(), at->tokens.begin(), at->tokens.end());
        const auto parent = saved.find(at->parent.ToString());
        if (parent == saved.end()) break;
        at = &parent->second;
      }
      v1::GenerateRequest request = Request(text, 1);
      request.set_save_state(true);
      auto sink = std::make_shared<CollectingSink>();
      EXPECT_TRUE((*reader)->engine().Generate(request, sink).ok());
      EXPECT_TRUE(sink->Wait().ok());
    }
    size_t compared = 0;
    for (const auto& [id, block] : read.blocks()) {
      const auto ours = saved.find(id);
      if (ours == saved.end()) continue;
      EXPECT_EQ(ours->second.bytes, block.bytes) << "block at " << block.first_token;
      ++compared;
      checkpoints_compared_ += block.checkpoint ? 1 : 0;
    }
    return compared;
  }

  static constexpr uint64_t kPages = 14;
  const TestFolder folder_;
  const std::string path_ = folder_ / "model.gguf";
  RecordingStore stores_;
  MemoryStore& store_ = stores_.memory;
  std::unique_ptr<Runtime> runtime_;
  RequestHandle last_ = 0;
  size_t checkpoints_compared_ = 0;
};

TEST_F(StatePropertyTest, AnyLifeLeavesExactStateEqualToReading) {
  std::mt19937 random(11);
  std::map<Tokens, Tokens> answers;  // to exact requests: always the same
  uint64_t cached = 0;
  for (int step = 0; step < 250; ++step) {
    // A cut is a request for a part of what was read; an extension one for more.
    Tokens prompt = Text(random() % 3, 20 + random() % 300);
    if (random() % 3 == 0) {
      const Tokens other = Text(3 + random() % 2, 70);
      prompt.insert(prompt.begin() + static_cast<ptrdiff_t>(prompt.size() / 2), other.begin(),
                    other.end());
    }
    v1::RestorePlan plan;
    bool exact = true;
    switch (random() % 4) {
      case 0:  // reads, or uses what is in memory
        break;
      case 1:  // an empty splice
        plan = store_.Plan(*runtime_, prompt);
        plan.set_splice(v1::SPLICE_FAST);
        break;
      case 2:
        plan = store_.Plan(*runtime_, prompt);
        break;
      default: {
        const Tokens stored = Text(random() % 3, 256);
        if (prompt.size() > 280 && store_.Plan(*runtime_, stored).reused_tokens() == 256) {
          plan = store_.Move(*runtime_, stored, 30 + random() % 60, 128, 100 + random() % 40,
                             random() % 2 == 0 ? v1::SPLICE_FAST : v1::SPLICE_SAFE);
          exact = false;
        }
      }
    }
    const auto tokens = static_cast<uint32_t>(1 + random() % 70);
    std::vector<std::shared_ptr<CollectingSink>> running = {Start(prompt, plan, tokens)};
    // The same, or a part of it, at the same time.
    while (running.size() < 3 && random() % 2 == 0) {
      running.push_back(Start(prompt, exact ? plan : v1::RestorePlan(), tokens));
    }
    switch (random() % 8) {
      case 0:
        runtime_->engine().Cancel(last_);
        break;
      case 1:  // a crash: everything that runs is lost, and what is in memory
        runtime_.reset();
        Open();
        break;
      case 2:
        store_.DropAllBut(store_.size() / 2);
        break;
      default:
        break;
    }
    for (size_t i = 0; i < running.size(); ++i) {
      if (!running[i]->Wait().ok()) continue;
      cached += running[i]->finish().usage().cached_tokens();
      if (i == 0 && !exact) continue;
      Tokens answer = running[i]->tokens();
      Tokens& known = answers[prompt];
      const size_t both = std::min(known.size(), answer.size());
      ASSERT_TRUE(
          std::equal(known.begin(), known.begin() + static_cast<ptrdiff_t>(both), answer.begin()))
          << "step " << step;
      if (answer.size() > known.size()) known = std::move(answer);
    }
  }
  EXPECT_GT(cached, 5000u) << "otherwise nothing was tried";
  EXPECT_GT(CompareWithReading(), 50u);
  EXPECT_GT(checkpoints_compared_, 50u);
}

TEST_F(StatePropertyTest, AnEmptySpliceIsTheIdentityAndSoIsACutUndone) {
  const Tokens prompt = Text(0, 300);
  const auto first = Start(prompt, {}, 40);
  ASSERT_TRUE(first->Wait().ok());
  const auto before = store_.blocks();
  v1::RestorePlan plan = store_.Plan(*runtime_, prompt);
  plan.set_splice(v1::SPLICE_SAFE);
  const auto spliced = Start(prompt, plan, 40);
  ASSERT_TRUE(spliced->Wait().ok());
  EXPECT_EQ(spliced->tokens(), first->tokens());
  EXPECT_EQ(spliced->finish().usage().spliced_tokens(), 0u);
  // Cut in the middle of a block, gone on with otherwise, and then again as it was.
  Tokens cut(prompt.begin(), prompt.begin() + 150);
  const Tokens other = Text(2, 80);
  cut.insert(cut.end(), other.begin(), other.end());
  ASSERT_TRUE(Start(cut, store_.Plan(*runtime_, cut), 40)->Wait().ok());
  const auto undone = Start(prompt, store_.Plan(*runtime_, prompt), 40);
  ASSERT_TRUE(undone->Wait().ok());
  EXPECT_EQ(undone->tokens(), first->tokens());
  EXPECT_GE(undone->finish().usage().cached_tokens(), 256u);
  const auto after = store_.blocks();
  for (const auto& [id, block] : before) EXPECT_EQ(after.at(id).bytes, block.bytes);
  EXPECT_GT(CompareWithReading(), 5u);
}

TEST_F(StatePropertyTest, OnePromptOfTwoAgentsIsInMemoryOnce) {
  const Tokens prompt = Text(1, 4 * kBlock + 10);
  v1::GenerateRequest request = Request(prompt, 150);
  request.set_save_state(true);
  const auto first = std::make_shared<HoldingSink>(1);
  ASSERT_TRUE(runtime_->engine().Generate(request, first).ok());
  first->WaitUntilHeld();
  const int alone = runtime_->engine().status().kv_pages_used;
  EXPECT_EQ(alone, 7) << "274 tokens of prompt and 150 of answer";
  const auto second = Start(prompt, {}, 150);
  first->LetGo(20);
  first->WaitUntilHeld();
  const int together = runtime_->engine().status().kv_pages_used;
  EXPECT_EQ(together, alone + 3) << "the second needs pages for its answer only";
  first->LetGo(0);
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 4 * kBlock);
  ASSERT_TRUE(Start(Text(0, 5), {}, 1)->Wait().ok());  // by now the first has ended as well
  // Idle now, and the next turn finds both prompt and answer.
  EXPECT_EQ(runtime_->engine().status().kv_pages_used, 0);
  EXPECT_GT(runtime_->engine().status().kv_pages_idle, 0);
  Tokens next = prompt;
  for (const uint32_t t : second->tokens()) next.push_back(t);
  next.push_back(3);
  const auto third = Start(next, {}, 5);
  ASSERT_TRUE(third->Wait().ok());
  EXPECT_EQ(third->finish().usage().cached_tokens(), 6 * kBlock);
}

// All of a prompt is in memory, and its last token has to be computed: in a copy of its page.
TEST_F(StatePropertyTest, ALastTokenInASharedPageIsWrittenIntoACopy) {
  const Tokens longer = Text(1, 3 * kBlock);
  const auto first = Start(longer, {}, 5);
  ASSERT_TRUE(first->Wait().ok());
  const Tokens prompt(longer.begin(), longer.begin() + 2 * kBlock);
  MemoryStore fresh;
  auto reader = OpenLocal(path_, SmallConfig(), &fresh);
  ASSERT_TRUE(reader.ok());
  const auto expected = GenerateGreedy((*reader)->engine(), prompt, 20);
  ASSERT_TRUE(expected.ok());
  const auto second = Start(prompt, {}, 20);
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->finish().usage().cached_tokens(), 2 * kBlock - 1);
  EXPECT_EQ(second->tokens(), *expected);
  const auto again = Start(longer, {}, 5);
  ASSERT_TRUE(again->Wait().ok());
  EXPECT_EQ(again->tokens(), first->tokens());
  // Where all memory is needed there is no room for a copy: the last block is read.
  const auto all = Start(prompt, {}, static_cast<uint32_t>(kPages * kBlock - prompt.size()));
  all->WaitForTokens(20);
  runtime_->engine().Cancel(last_);
  EXPECT_TRUE(absl::IsCancelled(all->Wait()) || all->tokens().size() > 20);
  EXPECT_TRUE(std::equal(expected->begin(), expected->end(), all->tokens().begin()));
  CompareWithReading();
}

}  // namespace
}  // namespace strata::compute
