#include "services/expertstore/io/read_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <map>

#include "services/expertstore/io/thread_engine.h"
#include "services/expertstore/io/uring_engine.h"
#include "services/expertstore/test_support.h"

namespace strata::expertstore {
namespace {

using shm::Priority;
using ::testing::HasSubstr;

constexpr uint64_t kFileBytes = 256 * 1024 + 100;

// A file, memory to read it into, and a queue over a fake engine that the test steps by hand.
struct Bench {
  explicit Bench(FakeEngine::Fault fault = {}, uint32_t depth = 4, bool direct = false) {
    path = TestPath("read_queue");
    std::mt19937_64 random(1);
    content.resize(kFileBytes);
    for (char& c : content) c = static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << content;
    files = std::make_unique<ModelFiles>(
        *ModelFiles::Open(std::vector<std::string>{path, path}, direct));
    memory = MemoryMap::Anonymous(1 << 20, false).value();
    engine = std::make_unique<FakeEngine>(*files, depth, std::move(fault), /*manual=*/true);
    ReadQueue::Options options;
    options.slice_bytes = 8192;
    options.background_depth = 1;
    queue = std::make_unique<ReadQueue>(*engine, *files, options);
  }
  ~Bench() { unlink(path.c_str()); }

  // `blocks` blocks of 4 KiB from `first_block` of file `file`, to the same place in memory.
  Extent At(uint64_t first_block, uint64_t blocks, uint32_t file = 0) {
    return {file, first_block * 4096, blocks * 4096, blocks * 4096,
            memory.data() + first_block * 4096};
  }
  void Add(uint64_t load, Priority priority, const Extent& extent) {
    queue->Add(load, priority, {&extent, 1});
  }
  // Steps everything to its end.
  std::map<uint64_t, absl::Status> Finish() {
    std::vector<ReadQueue::Outcome> outcomes;
    for (int i = 0; i < 1000; ++i) {
      queue->Pump();
      engine->Complete(1);
      queue->Reap(&outcomes);
    }
    EXPECT_EQ(queue->in_flight(), 0u);
    EXPECT_EQ(queue->waiting(), 0u);
    std::map<uint64_t, absl::Status> result;
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(result.emplace(outcome.load, outcome.status).second) << "reported twice";
    }
    return result;
  }
  bool Same(uint64_t offset, uint64_t bytes) {
    return std::memcmp(memory.data() + offset, content.data() + offset, bytes) == 0;
  }

  std::string path;
  std::string content;
  std::unique_ptr<ModelFiles> files;
  MemoryMap memory;
  std::unique_ptr<FakeEngine> engine;
  std::unique_ptr<ReadQueue> queue;
};

TEST(ReadQueue, CutsIntoSlicesAndKeepsTheEngineFull) {
  Bench bench;
  bench.Add(1, Priority::kDecode, bench.At(0, 11));
  bench.queue->Pump();
  EXPECT_EQ(bench.queue->in_flight(), 4u);
  EXPECT_EQ(bench.queue->waiting(), 2u);
  EXPECT_TRUE(bench.Finish().at(1).ok());
  ASSERT_EQ(bench.engine->log.size(), 6u);
  EXPECT_EQ(bench.engine->log[0].bytes, 8192u);
  EXPECT_EQ(bench.engine->log[5].bytes, 4096u);
  EXPECT_TRUE(bench.Same(0, 11 * 4096));
  EXPECT_EQ(bench.queue->bytes_read(), 11u * 4096);
}

TEST(ReadQueue, MoreUrgentLoadsGoFirst) {
  Bench bench({}, /*depth=*/1);
  bench.Add(1, Priority::kPrompt, bench.At(0, 4));
  bench.queue->Pump();  // its first slice is on its way
  bench.Add(2, Priority::kBackground, bench.At(10, 2));
  bench.Add(3, Priority::kLookAhead, bench.At(20, 2));
  bench.Add(4, Priority::kDecode, bench.At(30, 4));
  bench.Finish();
  std::vector<uint64_t> order;
  for (const ReadOp& op : bench.engine->log) order.push_back(op.offset / 4096);
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 30, 32, 20, 2, 10}));
}

TEST(ReadQueue, RaisingMovesWhatIsLeft) {
  Bench bench({}, /*depth=*/1);
  bench.Add(1, Priority::kPrompt, bench.At(0, 4));
  bench.Add(2, Priority::kPrompt, bench.At(10, 4));
  bench.queue->Pump();
  bench.queue->Raise(2, Priority::kDecode);
  bench.queue->Raise(2, Priority::kBackground);  // never down
  bench.queue->Raise(77, Priority::kDecode);     // unknown: nothing
  bench.Finish();
  std::vector<uint64_t> order;
  for (const ReadOp& op : bench.engine->log) order.push_back(op.offset / 4096);
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 10, 12, 2}));
}

TEST(ReadQueue, BackgroundNeverFillsTheEngine) {
  Bench bench;
  bench.Add(1, Priority::kBackground, bench.At(0, 20));
  bench.queue->Pump();
  EXPECT_EQ(bench.queue->in_flight(), 1u);
  EXPECT_FALSE(bench.queue->WantsMore(Priority::kBackground));
  EXPECT_TRUE(bench.queue->WantsMore(Priority::kDecode));
  EXPECT_TRUE(bench.Finish().at(1).ok());
}

TEST(ReadQueue, CancelKeepsUnbegunLoadsFromTheDrive) {
  Bench bench({}, /*depth=*/1);
  bench.Add(1, Priority::kDecode, bench.At(0, 4));
  bench.Add(2, Priority::kLookAhead, bench.At(10, 4));
  bench.queue->Pump();
  EXPECT_FALSE(bench.queue->Cancel(1));  // begun
  EXPECT_TRUE(bench.queue->Cancel(2));
  EXPECT_FALSE(bench.queue->Cancel(2));
  const auto outcomes = bench.Finish();
  EXPECT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes.at(1).ok());
  for (const ReadOp& op : bench.engine->log) EXPECT_LT(op.offset, 10u * 4096);
}

TEST(ReadQueue, ShortReadsAreContinued) {
  int reads = 0;
  for (const bool direct : {false, true}) {
    Bench bench(
        [&](const ReadOp& op) -> std::optional<int64_t> {
          ++reads;
          return std::min<int64_t>(op.bytes, 4096 + 700);  // past the cache: a block and a bit
        },
        4, direct);
    bench.Add(1, Priority::kDecode, bench.At(3, 8));
    EXPECT_TRUE(bench.Finish().at(1).ok());
    EXPECT_TRUE(bench.Same(3 * 4096, 8 * 4096));
    EXPECT_EQ(bench.queue->errors(), 0u);
  }
  EXPECT_GE(reads, 16);
}

TEST(ReadQueue, TheEndOfTheFileMayLieInsideTheLastBlock) {
  Bench bench;
  Extent extent = bench.At(62, 3);
  extent.needed = kFileBytes - 62 * 4096;
  bench.Add(1, Priority::kDecode, extent);
  EXPECT_TRUE(bench.Finish().at(1).ok());
  EXPECT_TRUE(bench.Same(62 * 4096, extent.needed));
}

TEST(ReadQueue, AFileThatEndsTooEarlyIsNamed) {
  Bench bench;
  bench.Add(1, Priority::kDecode, bench.At(64, 4));
  bench.Add(2, Priority::kDecode, bench.At(0, 4));
  const auto outcomes = bench.Finish();
  EXPECT_EQ(outcomes.at(1).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(outcomes.at(1).message()), HasSubstr(bench.path));
  EXPECT_TRUE(outcomes.at(2).ok());
}

TEST(ReadQueue, ErrorsAreRetriedThenBelieved) {
  std::map<uint64_t, int> tries;
  Bench bench([&](const ReadOp& op) -> std::optional<int64_t> {
    const int n = ++tries[op.offset];
    if (op.offset == 8192) return -EIO;            // never works
    if (op.offset == 65536 && n < 4) return -EIO;  // works at last
    return std::nullopt;
  });
  bench.Add(1, Priority::kDecode, bench.At(0, 12));
  bench.Add(2, Priority::kDecode, bench.At(16, 4));
  const auto outcomes = bench.Finish();
  EXPECT_EQ(outcomes.at(1).code(), absl::StatusCode::kInternal);
  for (const std::string& part :
       {bench.path, std::string("offset 8192"), std::string("Input/output error")}) {
    EXPECT_THAT(std::string(outcomes.at(1).message()), HasSubstr(part));
  }
  EXPECT_EQ(tries[8192], 4);
  EXPECT_TRUE(outcomes.at(2).ok());
  EXPECT_EQ(tries[65536], 4);
  EXPECT_TRUE(bench.Same(65536, 4 * 4096));
}

TEST(ReadQueue, GoesThroughTheCacheWhenDirectReadsAreRefused) {
  Bench bench(
      [&](const ReadOp& op) -> std::optional<int64_t> {
        if (op.direct) return -EINVAL;
        return std::nullopt;
      },
      4, /*direct=*/true);
  if (!bench.files->direct(0)) GTEST_SKIP() << "this file system has no O_DIRECT";
  bench.Add(1, Priority::kDecode, bench.At(0, 12));
  bench.Add(2, Priority::kDecode, bench.At(20, 4, 1));
  const auto outcomes = bench.Finish();
  EXPECT_TRUE(outcomes.at(1).ok());
  EXPECT_TRUE(outcomes.at(2).ok());
  EXPECT_TRUE(bench.Same(0, 12 * 4096));
  EXPECT_FALSE(bench.files->all_direct(2));
  EXPECT_EQ(bench.queue->errors(), 0u);
}

// Both real engines, past the page cache and through it, with registered and other memory.
TEST(Engines, DeliverTheFilesBytes) {
  for (const bool direct : {false, true}) {
    for (const bool uring : {false, true}) {
      Bench bench({}, 4, direct);
      std::unique_ptr<ReadEngine> engine;
      if (uring) {
        const std::span<std::byte> piece(bench.memory.data(), 128 * 1024);
        auto made = UringEngine::Create(*bench.files, {&piece, 1}, 4);
        if (!made.ok()) GTEST_SKIP() << "no io_uring here: " << made.status();
        engine = *std::move(made);
      } else {
        engine = ThreadEngine::Create(*bench.files, 4).value();
      }
      ReadQueue queue(*engine, *bench.files, {.slice_bytes = 8192, .background_depth = 2});
      Extent last = bench.At(48, 17);
      last.needed = kFileBytes - 48 * 4096;
      const Extent extents[] = {bench.At(0, 48), last};
      queue.Add(5, Priority::kDecode, extents);
      std::vector<ReadQueue::Outcome> outcomes;
      while (outcomes.empty()) {
        queue.Pump();
        pollfd ready{engine->fd(), POLLIN, 0};
        ASSERT_EQ(poll(&ready, 1, 120000), 1);
        queue.Reap(&outcomes);
      }
      EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
      EXPECT_TRUE(bench.Same(0, kFileBytes)) << engine->name() << " direct " << direct;
    }
  }
}

TEST(ModelFiles, AMissingFileIsNamed) {
  const auto files = ModelFiles::Open(std::vector<std::string>{"/nowhere/x.gguf"}, true);
  EXPECT_EQ(files.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("/nowhere/x.gguf"));
}

}  // namespace
}  // namespace strata::expertstore
