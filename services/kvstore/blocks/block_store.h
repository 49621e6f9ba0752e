// Blocks and checkpoints on disk, within a byte budget.
//
// A checkpoint is the state at one position behind a block (Kind); it is stored like a block, but
// nothing follows it. What holds for blocks holds for both, unless it is said.
//
// A block's data lies in a segment file (../segments), its record in the index (IndexDatabase, and
// all of it in memory). Saving appends the data; Commit makes the data durable and then writes the
// records, so after a crash at any point a block is there completely or not at all, and what was
// committed is there. The index holds nothing that the segments do not hold as well, except uses
// and learned profiles, and pins, which are in a file of their own (pins.h): an index that is
// damaged is moved aside and put together again from them. Data is verified by checksum when read;
// a damaged block is dropped and reads as not found. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/kvstore/align/aligner.h"
#include "services/kvstore/align/seed_index.h"
#include "services/kvstore/blocks/block_index.h"
#include "services/kvstore/blocks/index_database.h"
#include "services/kvstore/segments/segment_set.h"

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

namespace strata::kvstore {

struct PlannedBlock {
  BlockId id;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint64_t bytes = 0;
  state::Lineage lineage = state::Lineage::kExact;
  bool checkpoint = false;
};

struct PlanQuery {
  BlockId root;
  std::span<const uint32_t> tokens;
  uint32_t block_tokens = 0;
  // The least exact state that the request accepts.
  state::Lineage accept = state::Lineage::kExact;
  // Whether text that is stored elsewhere may be moved here, and where lines start (see Align).
  bool move = false;
  std::span<const uint32_t> line_starts;
  AlignOptions align;
  bool dry_run = false;  // changes nothing: nothing counts as used
  // Rows can be cut at multiples of so many tokens. 0: the layout has other components as well, and
  // state can be used at a checkpoint only.
  uint32_t cut = 1;
};

struct PlannedRun {
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint32_t old_first_token = 0;
  std::vector<PlannedBlock> blocks;
};

struct StatePlan {
  std::vector<PlannedBlock> blocks;
  // Behind the blocks; of its tokens the first ones count, up to reused_tokens.
  std::optional<PlannedBlock> tail;
  uint32_t reused_tokens = 0;
  std::vector<PlannedRun> runs;        // behind the prefix
  uint32_t moved_tokens = 0;           // of all runs
  uint32_t first_different_token = 0;  // end of the longest stored start, whole blocks or not
  // The conversation that starts so (or has the longest run), by its last block, and how it goes on
  // from there.
  std::optional<BlockId> conversation;
  std::vector<uint32_t> stored_instead;
};

// All text up to a block that no other continues.
struct Conversation {
  std::vector<PlannedBlock> chain;  // from token 0 on, unless blocks were dropped
  uint32_t own_blocks = 0;          // the last ones, which no other conversation shares
  uint64_t own_bytes = 0;
  std::vector<uint32_t> own_tokens;  // where they begin
  BlockRecord last;                  // its last block
};

struct Verification {
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t damaged = 0;
  uint64_t total_blocks = 0;
};

struct StoreStatus {
  uint64_t blocks = 0;
  uint64_t checkpoints = 0;  // of them
  uint64_t bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t plans = 0;
  uint64_t plan_hits = 0;
  uint64_t planned_tokens = 0;
  uint64_t moved_tokens = 0;
  uint64_t saved_blocks = 0;
  uint64_t evicted_blocks = 0;
  uint64_t damaged_blocks = 0;
  uint64_t disk_bytes = 0;     // of the segments: blocks and space not given back yet
  uint64_t written_bytes = 0;  // to the segments since the start
  uint64_t segments = 0;
  bool degraded = false;
  std::string degraded_reason;
};

class BlockStore {
 public:
  struct Options {
    std::string path;
    uint64_t budget_bytes = 0;
    uint64_t segment_bytes = 0;  // 0 = by the budget
    bool punch_holes = true;
    std::function<uint64_t()> now_ms;  // Unix time; the system's if there is none
  };

  // Creates the folder. AlreadyExists if another process has the store open, FailedPrecondition if
  // a newer release wrote it. An index that is damaged is moved aside ("<path>.damaged-<time>") and
  // made anew; data of version 2 is moved into segments. A folder that can only be read is served
  // from, and `degraded`.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Open(const Options& options);
  // Commits.
  ~BlockStore();

  // The longest prefix of the tokens that is stored after the root: whole blocks, then the part of
  // a block or tail that goes on furthest, unless it is less than an eighth of it (to read that is
  // no more work than to fetch it). In a layout that cannot be cut, the blocks up to the furthest
  // checkpoint before the last token, and it. And, if the query allows it, the runs of text behind
  // it to move here from exact blocks of the same root. Tokens are compared, not only ids.
  StatePlan Plan(const PlanQuery& query);

  // NotFound if it is gone or was damaged.
  absl::StatusOr<BlockData> Read(const BlockId& id);

  // True if stored, false if it was there already (a tail's rows: perhaps in a block or longer
  // tail); a crash may take it until it is committed. Tails inside a new block or tail are dropped
  // when that is committed, which is pinned if one of them was. FailedPrecondition if the parent is
  // neither `root` nor stored: the block could not be reached. InvalidArgument if it does not
  // continue its parent, follows a checkpoint or claims to be more exact. ResourceExhausted if it
  // is larger than the budget or the disk refuses.
  absl::StatusOr<bool> Save(const BlockId& root, const BlockId& parent, uint32_t first_token,
                            std::span<const uint32_t> tokens, std::string_view data,
                            state::Lineage lineage = state::Lineage::kExact,
                            Kind kind = Kind::kBlock);
  // All that was saved so far, by whomever, survives a crash.
  absl::Status Commit();

  uint32_t Pin(std::span<const BlockId> ids, bool pinned);
  // And what checkpoints hold of a block's text or what follows it.
  uint64_t Delete(std::span<const BlockId> ids);
  uint64_t DeleteAll();
  // Gives dead space back and moves what lives in thin segments. Returns the bytes given back.
  uint64_t CollectGarbage();

  // The one that ends with `id`, or all, used last first; with so many of their own tokens.
  std::vector<Conversation> List(std::optional<BlockId> id, uint32_t tokens) const;
  // Reads everything, in the order in which it lies; damaged blocks are dropped. `progress` is
  // called after every block and stops it by returning false.
  Verification Verify(const std::function<bool(const Verification&)>& progress);

  absl::Status PutProfile(std::string_view name, std::string_view value);
  absl::StatusOr<std::string> GetProfile(std::string_view name);

  StoreStatus status() const;

 private:
  explicit BlockStore(Options options) : options_(std::move(options)) {}
  absl::Status OpenFiles();
  absl::Status LoadIndex();
  void AdoptTail();
  void RestorePins();
  void MoveOldBlocks(std::vector<std::pair<BlockId, BlockRecord>> old);

  // With write_mutex_ held.
  // Evicts until `bytes` more fit; never `keep`.
  absl::Status MakeRoom(uint64_t bytes, const BlockId& keep);
  absl::Status CommitStaged();
  // Replaces tails by what they are inside of.
  absl::Status DropReplaced();
  absl::Status Append(const BlockId& id, BlockRecord& record, std::string_view data);
  void MoveSegment(uint32_t segment);

  // With mutex_ held.
  absl::Status EvictOne(const BlockId& keep);
  absl::Status Drop(std::span<const BlockId> ids);
  absl::Status Write(IndexDatabase::Batch& batch, bool durable = false);
  void NoteWrite(const absl::Status& status);
  void KeepPins();
  uint64_t Now();
  // The blocks from `parent` on, of `lineage`, that hold the tokens from `at` on; they may get less
  // exact on the way where that reaches further.
  std::vector<PlannedBlock> LongestPrefix(const PlanQuery& query, BlockId parent,
                                          state::Lineage lineage, size_t at) const;
  PlannedBlock Planned(const BlockId& id) const;
  // Ends the plan whose blocks these are behind them, or before their end.
  void PlanTail(const PlanQuery& query, StatePlan& plan) const;
  const BlockRecord* FindEqual(const BlockId& id, std::span<const uint32_t> tokens) const;
  std::vector<PlannedRun> PlanRuns(const PlanQuery& query, uint32_t known) const;
  // `prefix`: the longest stored start in whole blocks.
  void Explain(const PlanQuery& query, std::span<const PlannedBlock> prefix, StatePlan& plan) const;
  Conversation Describe(const BlockId& end, uint32_t tokens) const;
  void NoteUse(std::span<const PlannedBlock> blocks, uint64_t now);
  void NoteUseOfTail(const StatePlan& plan, uint64_t now);
  void AddToIndex(const BlockId& id, BlockRecord record);
  void RemoveFromIndex(const BlockId& id);

  const Options options_;
  std::unique_ptr<IndexDatabase> database_;
  std::unique_ptr<SegmentSet> segments_;

  // Saving is one thread's work at a time and may take a second; planning and reading only look at
  // what mutex_ protects. write_mutex_ is taken first.
  std::mutex write_mutex_;
  std::vector<BlockId> staged_;    // appended, not committed
  std::vector<BlockId> replaced_;  // tails to be dropped at the next commit
  uint64_t staged_bytes_ = 0;

  mutable std::mutex mutex_;
  BlockIndex index_;
  absl::flat_hash_map<BlockId, SeedIndex> seeds_;  // of exact blocks, by root: nothing is shared
  absl::flat_hash_set<BlockId> used_;              // since their records were written
  StoreStatus counters_;
  uint64_t latest_ms_ = 0;
};

}  // namespace strata::kvstore
