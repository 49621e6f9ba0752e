// What the world does to a store: full and read-only drives, flipped bytes, clocks, kills. The
// store must open, must never hand out bytes that were not saved under that name, and must lose no
// more than what was hit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "common/base/log.h"
#include "common/base/status.h"
#include "services/kvstore/blocks/store_fixture.h"

namespace strata::kvstore {
namespace {

namespace fs = std::filesystem;

class BlockStoreFaultTest : public StoreFixture {
 protected:
  BlockStoreFaultTest() { SetLogLevel(static_cast<LogLevel>(0)); }  // hundreds of faults, all meant
  ~BlockStoreFaultTest() override {
    SetLogLevel(LogLevel::kInfo);
    store_.reset();
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
    for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) {
      if (entry.path().string().starts_with(path_ + ".damaged-")) fs::remove_all(entry.path());
    }
  }

  std::string Segment() {
    for (const auto& file : fs::directory_iterator(path_ + "/segments")) return file.path();
    return "";
  }
  // Every block of the sequence that the store knows, and the checkpoint behind them, has the right
  // bytes. Returns how many. Looking does not count as a use, so that what was saved last is what
  // is kept longest.
  size_t CheckAll(std::vector<uint32_t> tokens, uint32_t cut = 1) {
    size_t good = 0;
    const size_t end = tokens.size();
    if (cut == 0) tokens.push_back(0);  // the last token is always computed
    PlanQuery query{root_, tokens, kBlock};
    query.dry_run = true;
    query.cut = cut;
    const StatePlan plan = store_->Plan(query);
    std::vector<PlannedBlock> all = plan.blocks;
    if (plan.tail) all.push_back(*plan.tail);
    for (const PlannedBlock& block : all) {
      const auto data = store_->Read(block.id);
      if (!data.ok()) break;
      EXPECT_EQ(data->view(), Data(block.id, block.bytes));
      good += block.first_token + block.tokens <= end ? 1 : 0;
    }
    return good;
  }
  // Blocks and a tail that is worth as much for its bytes as they are.
  absl::Status SaveTurn(BlockStore& store, const std::vector<uint32_t>& tokens) {
    const size_t whole = tokens.size() / kBlock * kBlock;
    const std::span<const uint32_t> rest = std::span(tokens).subspan(whole);
    BlockId parent = root_;
    for (size_t at = 0; at < whole; at += kBlock) {
      parent = state::ChildId(parent, std::span(tokens).subspan(at, kBlock));
    }
    STRATA_RETURN_IF_ERROR(
        SaveAll(store, root_, {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(whole)}));
    const BlockId id = state::CheckpointId(parent, state::Lineage::kExact, rest);
    return store
        .Save(root_, parent, static_cast<uint32_t>(whole), rest, Data(id, 12'000),
              state::Lineage::kExact, Kind::kTail)
        .status();
  }
  bool MountTmpfs(const char* options) {
    if (mount("tmpfs", path_.c_str(), "tmpfs", 0, options) != 0) return false;
    mounted_ = true;
    return true;
  }

  bool mounted_ = false;
};

TEST_F(BlockStoreFaultTest, AFullDriveKeepsWhatIsThere) {
  if (!MountTmpfs("size=3m")) GTEST_SKIP() << "mounting needs root";
  Open();
  absl::Status status;
  uint32_t saved = 0;
  for (; status.ok() && saved < 100; ++saved) {
    status = SaveAll(*store_, root_, Tokens(kBlock, 1000 * saved), 100'000);
    if (status.ok()) status = store_->Commit();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(store_->status().degraded);
  EXPECT_NE(store_->status().degraded_reason.find("No space"), std::string::npos)
      << store_->status().degraded_reason;
  ASSERT_GT(saved, 10u);
  for (uint32_t i = 0; i + 1 < saved; ++i) {
    EXPECT_EQ(CheckAll(Tokens(kBlock, 1000 * i)), 1u) << i;
  }
  // Room again: the same store goes on.
  std::vector<BlockId> some;
  for (uint32_t i = 0; i < 5; ++i) some.push_back(Plan(Tokens(kBlock, 1000 * i)).blocks[0].id);
  EXPECT_EQ(store_->Delete(some), 5u);
  EXPECT_TRUE(SaveAll(*store_, root_, Tokens(kBlock, 777), 100'000).ok());
  EXPECT_TRUE(store_->Commit().ok());
  EXPECT_FALSE(store_->status().degraded);
  Open();
  EXPECT_EQ(CheckAll(Tokens(kBlock, 777)), 1u);
  EXPECT_EQ(CheckAll(Tokens(kBlock, 9000)), 1u);
}

// Without root: the kernel refuses to let any file grow beyond a limit.
TEST_F(BlockStoreFaultTest, RefusedWritesAreReportedAndNothingIsTorn) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    Open();
    SaveAll(Tokens(14));
    if (!store_->Commit().ok()) _exit(1);
    const rlimit limit{40 * kAlign, 40 * kAlign};  // in the middle of a block
    setrlimit(RLIMIT_FSIZE, &limit);
    absl::Status status;
    for (uint32_t i = 1; status.ok() && i < 20; ++i) {
      status = SaveAll(*store_, root_, Tokens(kBlock, 1000 * i));
    }
    if (status.code() != absl::StatusCode::kResourceExhausted) _exit(2);
    if (!store_->status().degraded) _exit(3);
    if (CheckAll(Tokens(14)) != 4) _exit(4);
    _exit(0);
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  ASSERT_TRUE(WIFEXITED(result));
  ASSERT_EQ(WEXITSTATUS(result), 0);
  Open();
  EXPECT_EQ(CheckAll(Tokens(14)), 4u);
  EXPECT_EQ(store_->status().damaged_blocks, 0u);
}

TEST_F(BlockStoreFaultTest, AReadOnlyFolderIsServedFrom) {
  if (!MountTmpfs("size=16m")) GTEST_SKIP() << "mounting needs root";
  Open();
  SaveAll(Tokens(16));
  ASSERT_TRUE(store_->PutProfile("experts", "learned").ok());
  store_.reset();
  ASSERT_EQ(mount("", path_.c_str(), "", MS_REMOUNT | MS_RDONLY, ""), 0);
  Open();
  EXPECT_EQ(CheckAll(Tokens(16)), 4u);
  EXPECT_EQ(*store_->GetProfile("experts"), "learned");
  EXPECT_TRUE(store_->status().degraded);
  EXPECT_NE(store_->status().degraded_reason.find(path_), std::string::npos);
  EXPECT_FALSE(SaveAll(*store_, root_, Tokens(16, 100)).ok());
  EXPECT_EQ(Plan(Tokens(16, 100)).reused_tokens, 0u);
  EXPECT_FALSE(store_->PutProfile("experts", "more").ok());
  store_.reset();
  ASSERT_EQ(mount("", path_.c_str(), "", MS_REMOUNT, ""), 0);
  Open();
  EXPECT_FALSE(store_->status().degraded);
  EXPECT_EQ(CheckAll(Tokens(16)), 4u);
}

TEST_F(BlockStoreFaultTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(path_ + "/file") << "x";
  BlockStore::Options options;
  options.path = path_ + "/file/kv";
  const absl::Status status = TryOpen(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find(options.path), absl::string_view::npos);
}

TEST_F(BlockStoreFaultTest, ClockJumpsDoNotTurnTheOrderAround) {
  uint64_t clock = 1'000'000'000;
  BlockStore::Options options;
  options.budget_bytes = 6 * 24'576;
  options.now_ms = [&] { return clock; };
  ASSERT_TRUE(TryOpen(options).ok());
  SaveAll(Tokens(8, 0));
  clock = 1000;  // a drained battery: 1970
  SaveAll(Tokens(8, 100));
  SaveAll(Tokens(8, 200));
  SaveAll(Tokens(8, 300));
  EXPECT_EQ(Plan(Tokens(8, 0)).reused_tokens, 0u) << "the oldest, whatever the clock said";
  EXPECT_EQ(Plan(Tokens(8, 300)).reused_tokens, 8u);
  ASSERT_TRUE(TryOpen(options).ok());
  SaveAll(Tokens(8, 400));
  EXPECT_EQ(Plan(Tokens(8, 100)).reused_tokens, 0u);
  EXPECT_EQ(Plan(Tokens(8, 400)).reused_tokens, 8u);
}

// One flipped bit at places of every kind, in every file: see which blocks are lost.
TEST_F(BlockStoreFaultTest, FlippedBitsAreNeverServed) {
  constexpr uint32_t kBlocks = 12;  // with a checkpoint at the end
  constexpr uint32_t kTokens = 4 * kBlocks - 2;
  Open();
  SaveAll(Tokens(kTokens));
  store_.reset();
  Open();  // the log has become a table
  SaveAll(Tokens(kTokens, 1000));
  store_.reset();
  const std::string original = path_ + ".original";
  fs::copy(path_, original, fs::copy_options::recursive);
  std::vector<std::string> files;
  for (const auto& file : fs::recursive_directory_iterator(original)) {
    if (file.is_regular_file() && file.file_size() > 0 && file.path().filename() != "LOG" &&
        !file.path().filename().string().starts_with("LOG.old")) {
      files.push_back(fs::relative(file.path(), original).string());
    }
  }
  std::mt19937_64 random(5);
  size_t complete = 0;
  size_t tries = 0;
  for (const std::string& name : files) {
    const bool segment = name.ends_with(".segment");
    for (int i = 0; i < (segment ? 24 : 12); ++i, ++tries) {
      fs::remove_all(path_);
      fs::copy(original, path_, fs::copy_options::recursive);
      const uint64_t size = fs::file_size(path_ + "/" + name);
      uint64_t at = random() % size;
      // In segments a third each: header, description, data.
      if (segment && i % 3 == 0) at = at / 24'576 * 24'576 + random() % 64;
      if (segment && i % 3 == 1) at = at / 24'576 * 24'576 + 64 + random() % 120;
      {
        std::fstream file(path_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(at));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte ^ (1 << random() % 8)));
      }
      Open();
      ASSERT_NE(store_, nullptr) << name << " byte " << at;
      const size_t a = CheckAll(Tokens(kTokens));
      const size_t b = CheckAll(Tokens(kTokens, 1000));
      if (a + b == 2 * kBlocks) ++complete;
      if (segment && i % 3 != 2) {
        EXPECT_EQ(a + b, 2 * kBlocks) << name << ": the index knows " << at;
      }
      // What was lost can be saved again.
      SaveAll(Tokens(kTokens));
      SaveAll(Tokens(kTokens, 1000));
      EXPECT_EQ(CheckAll(Tokens(kTokens)), kBlocks) << name << " byte " << at;
      EXPECT_EQ(CheckAll(Tokens(kTokens, 1000)), kBlocks) << name << " byte " << at;
      store_.reset();
      for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) {
        if (entry.path().string().starts_with(path_ + ".damaged-")) fs::remove_all(entry.path());
      }
    }
  }
  fs::remove_all(original);
  EXPECT_GT(complete, tries / 2) << "most damage costs no block: the segments have it all";
}

TEST_F(BlockStoreFaultTest, AnIndexThatIsGoneIsMadeAgain) {
  Open();
  SaveAll(Tokens(16));
  SaveAll(Tokens(6, 100));
  SaveAll(Tokens(7, 100));
  ASSERT_TRUE(SaveAll(*store_, root_, Tokens(6, 200), 20'000, Kind::kCheckpoint).ok());
  const std::vector<BlockId> pins = {Plan(Tokens(16)).blocks[3].id, Plan(Tokens(7, 100)).tail->id};
  EXPECT_EQ(store_->Pin(pins, true), 2u);
  store_.reset();
  for (const auto& file : fs::directory_iterator(path_)) {
    if (file.path().filename().string().starts_with("MANIFEST")) {
      std::ofstream(file.path(), std::ios::trunc) << "this is no manifest";
    }
  }
  Open();
  EXPECT_EQ(CheckAll(Tokens(16)), 4u);
  EXPECT_EQ(CheckAll(Tokens(7, 100)), 2u);
  EXPECT_EQ(CheckAll(Tokens(6, 200), /*cut=*/0), 2u);
  ASSERT_TRUE(store_->Commit().ok());
  EXPECT_EQ(store_->status().checkpoints, 2u) << "not the one that had been replaced";
  int aside = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) {
    aside += entry.path().string().starts_with(path_ + ".damaged-") ? 1 : 0;
  }
  EXPECT_EQ(aside, 1);
  EXPECT_EQ(store_->Pin(pins, true), 0u) << "they are pinned";
  EXPECT_EQ(store_->Pin(std::span(pins).first(1), false), 1u);
  store_.reset();
  for (const auto& file : fs::directory_iterator(path_)) {
    if (file.is_regular_file()) fs::remove(file.path());
  }
  Open();
  EXPECT_EQ(CheckAll(Tokens(16)), 4u) << "somebody deleted it";
  EXPECT_EQ(store_->Pin(pins, false), 1u);
}

TEST_F(BlockStoreFaultTest, SegmentsThatAreGoneAreForgotten) {
  Open();
  SaveAll(Tokens(16));
  store_.reset();
  fs::remove(Segment());
  Open();
  EXPECT_EQ(Plan(Tokens(16)).reused_tokens, 0u);
  EXPECT_EQ(store_->status().blocks, 0u);
  SaveAll(Tokens(16));
  EXPECT_EQ(CheckAll(Tokens(16)), 4u);
}

TEST_F(BlockStoreFaultTest, DeletedTextDoesNotComeBackWithARebuiltIndex) {
  for (const bool punch : {true, false}) {
    BlockStore::Options options;
    options.budget_bytes = 1 << 30;
    options.punch_holes = punch;
    ASSERT_TRUE(TryOpen(options).ok());
    SaveAll(Tokens(14));  // a tail that is replaced
    ASSERT_TRUE(store_->Commit().ok());
    SaveAll(Tokens(18));
    SaveAll(Tokens(16, 100));
    ASSERT_TRUE(store_->Commit().ok());
    std::vector<BlockId> ids;
    for (const PlannedBlock& block : Plan(Tokens(16)).blocks) ids.push_back(block.id);
    EXPECT_EQ(store_->Delete(ids), 5u) << "with the tail";
    store_.reset();
    for (const auto& file : fs::directory_iterator(path_)) {
      if (file.is_regular_file()) fs::remove(file.path());
    }
    ASSERT_TRUE(TryOpen(options).ok());
    EXPECT_EQ(Plan(Tokens(16)).reused_tokens, 0u);
    EXPECT_EQ(CheckAll(Tokens(16, 100)), 4u);
    EXPECT_EQ(store_->status().blocks, 4u);
    store_->DeleteAll();
  }
}

// Two of each: gateways that plan, computes that save the same conversations.
TEST_F(BlockStoreFaultTest, TwoComputesSaveTheSameBlocks) {
  Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < 30; ++i) {
        ASSERT_TRUE(SaveAll(*store_, root_, Tokens(16, 100 * i)).ok());
        ASSERT_TRUE(store_->Commit().ok());
      }
    });
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < 60; ++i) CheckAll(Tokens(16, 100 * (i % 30)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->status().blocks, 120u);
  EXPECT_EQ(store_->status().saved_blocks, 120u);
  EXPECT_EQ(store_->status().written_bytes, store_->status().bytes) << "each was written once";
}

// A child saves, reads, evicts and collects until it is killed, 100 times. It reports each
// conversation that was committed; the newest of them are within the budget and must be there.
TEST_F(BlockStoreFaultTest, KilledAHundredTimes) {
  constexpr uint64_t kBudget = 60 * 24'576;
  // So many conversations of 4 to 5 blocks, the last ones, the budget certainly holds: also those
  // whose commit was not heard of, and with a segment of dead space.
  constexpr uint32_t kKept = 8;
  std::mt19937 random(17);
  std::vector<uint32_t> committed;
  uint32_t next = 0;
  for (int round = 0; round < 100; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      BlockStore::Options options;
      options.path = path_;
      options.budget_bytes = kBudget;
      options.segment_bytes = 10 * 24'576;
      options.punch_holes = round % 2 == 0;
      auto store = BlockStore::Open(options);
      if (!store.ok()) _exit(1);
      for (uint32_t n = next;; ++n) {
        // A turn, and the next one, whose blocks replace the tail.
        if (!SaveTurn(**store, Tokens(11, 100 * n)).ok()) _exit(2);
        if (n % 2 == 0 && !(*store)->Commit().ok()) _exit(3);
        if (!SaveTurn(**store, Tokens(15, 100 * n)).ok()) _exit(2);
        if (!(*store)->Commit().ok()) _exit(3);
        if (write(ends[1], &n, sizeof(n)) != sizeof(n)) _exit(4);
        if (n % 7 == 0) (*store)->CollectGarbage();
      }
    }
    close(ends[1]);
    uint32_t n = 0;
    // Not before it has opened; then at any moment.
    if (read(ends[0], &n, sizeof(n)) == sizeof(n)) committed.push_back(n);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself: " << WEXITSTATUS(status);
    while (read(ends[0], &n, sizeof(n)) == sizeof(n)) committed.push_back(n);
    close(ends[0]);
    ASSERT_FALSE(committed.empty());
    next = committed.back() + 2;
    Open(kBudget);
    ASSERT_NE(store_, nullptr);
    EXPECT_EQ(store_->status().damaged_blocks, 0u);
    EXPECT_LE(store_->status().disk_bytes, kBudget);
    for (const uint32_t conversation : committed) {
      if (conversation + kKept < next) continue;
      ASSERT_EQ(CheckAll(Tokens(15, 100 * conversation)), 4u) << "round " << round;
    }
    for (uint32_t old = 0; old < next; old += 3) CheckAll(Tokens(15, 100 * old));
    EXPECT_EQ(store_->status().damaged_blocks, 0u);
    store_.reset();
  }
}

}  // namespace
}  // namespace strata::kvstore
