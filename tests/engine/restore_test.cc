// What a request whose state is on its way from the store and the requests beside it do to each
// other.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/test_folder.h"
#include "services/compute/engine/restorer.h"
#include "tests/engine/local_engine.h"
#include "tests/engine/memory_store.h"
#include "tests/oracle/random_model.h"

namespace strata::compute {
namespace {

using std::chrono::milliseconds;

// Restores nothing before Open().
class GatedStore final : public StateStore {
 public:
  void Restore(const v1::RestorePlan& plan, std::string_view request_id,
               absl::FunctionRef<bool(std::vector<std::byte>)> take) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return open_; });
    }
    memory.Restore(plan, request_id, take);
  }
  void Save(SavedBlock block) override { memory.Save(std::move(block)); }
  bool connected() const override { return true; }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  MemoryStore memory;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Makes every step take long.
class SlowSink final : public GenerateSink {
 public:
  explicit SlowSink(milliseconds step) : step_(step) {}
  void OnProgress(const v1::Progress&) override {}
  void OnTokens(const v1::TokenBatch&) override {
    {
      const std::lock_guard lock(mutex_);
      ++tokens_;
      changed_.notify_all();
    }
    std::this_thread::sleep_for(step_);
  }
  void OnFinish(const absl::Status&, const v1::Finish&) override {}
  int tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  void WaitForTokens(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_ >= count; });
  }

 private:
  const milliseconds step_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int tokens_ = 0;
};

class RestoreTest : public testing::Test {
 protected:
  void SetUp() override {
    oracle::RandomModel shape;
    shape.embedding = 64;
    shape.feed_forward = 64;
    shape.head_dim = 16;
    ASSERT_TRUE(oracle::WriteRandomModel(path_, shape).ok());
    v1::ComputeConfig config = SmallConfig();
    config.set_context_length(4096);
    config.set_max_sequences(3);
    auto runtime = OpenLocal(path_, config, &store_);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  Engine& engine() { return runtime_->engine(); }
  static std::vector<uint32_t> Prompt(size_t size, uint32_t step) {
    std::vector<uint32_t> prompt(size);
    for (size_t i = 0; i < size; ++i) prompt[i] = static_cast<uint32_t>(i * step % 128);
    return prompt;
  }
  // Reads a prompt, saves its state, and returns a request that restores it.
  v1::GenerateRequest Saved(const std::vector<uint32_t>& prompt) {
    v1::GenerateRequest request = Request(prompt, 10);
    request.set_save_state(true);
    const auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine().Generate(request, sink).ok());
    EXPECT_TRUE(sink->Wait().ok());
    answer_ = sink->tokens();
    *request.mutable_restore() = store_.memory.Plan(*runtime_, prompt);
    EXPECT_EQ(request.restore().reused_tokens(), prompt.size());
    return request;
  }

  const TestFolder folder_;
  const std::string path_ = folder_ / "model.gguf";
  GatedStore store_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<uint32_t> answer_;  // to the prompt saved last
};

TEST_F(RestoreTest, OthersGoOnWhileStateIsOnItsWay) {
  const v1::GenerateRequest request = Saved(Prompt(300, 37));
  const auto restored = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, restored).ok());
  const auto other = GenerateGreedy(engine(), Prompt(1000, 41), 50);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->size(), 50u);
  EXPECT_TRUE(restored->tokens().empty());

  store_.Open();
  ASSERT_TRUE(restored->Wait().ok());
  EXPECT_EQ(restored->tokens(), answer_);
  EXPECT_EQ(restored->finish().usage().cached_tokens(), 299u);
}

// Only a few blocks are on the way at a time. Were no more taken between two steps than are there
// when the first ends, the state of a long prompt would take as many steps as it has such portions.
TEST_F(RestoreTest, ALongRestoreTakesFewStepsOfOthers) {
  constexpr size_t kBlocks = 60;
  const v1::GenerateRequest request = Saved(Prompt(kBlocks * KvCache::kPageTokens, 37));
  store_.Open();
  const auto slow = std::make_shared<SlowSink>(milliseconds(100));
  const auto handle = engine().Generate(Request(Prompt(10, 41), 1000), slow);
  ASSERT_TRUE(handle.ok());
  slow->WaitForTokens(2);
  const auto restored = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine().Generate(request, restored).ok());
  restored->WaitForTokens(1);
  const int steps = slow->tokens() - 2;
  engine().Cancel(*handle);
  ASSERT_TRUE(restored->Wait().ok());
  EXPECT_EQ(restored->tokens(), answer_);
  EXPECT_EQ(restored->finish().usage().cached_tokens(), kBlocks * KvCache::kPageTokens - 1);
  EXPECT_LT(steps, static_cast<int>(kBlocks) / Restorer::kMaxInFlight / 2);
}

}  // namespace
}  // namespace strata::compute
