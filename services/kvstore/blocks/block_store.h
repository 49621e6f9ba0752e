// Blocks on disk, within a byte budget.
//
// RocksDB column families: `blocks` id -> data (in blob files: values of megabytes are not
// rewritten by compaction), `index` id -> BlockRecord, `profile` name -> learned data of other
// daemons; `conversations` and `replay` are part of the format and filled by splicing and tool-call
// replay. A block's data and record are written in one atomic batch, so after a crash at any point
// a block is there completely or not at all. Data is verified by checksum when read; a damaged
// block is dropped and reads as not found. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/kvstore/align/aligner.h"
#include "services/kvstore/align/seed_index.h"
#include "services/kvstore/blocks/block_index.h"

#include "absl/status/statusor.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class WriteBatch;
}  // namespace rocksdb

namespace strata::kvstore {

struct PlannedBlock {
  BlockId id;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint64_t bytes = 0;
  state::Lineage lineage = state::Lineage::kExact;
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
};

struct PlannedRun {
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  uint32_t old_first_token = 0;
  std::vector<PlannedBlock> blocks;
};

struct StatePlan {
  std::vector<PlannedBlock> blocks;
  uint32_t reused_tokens = 0;
  std::vector<PlannedRun> runs;        // behind the prefix
  uint32_t moved_tokens = 0;           // of all runs
  uint32_t first_different_token = 0;  // end of the longest stored start, whole blocks or not
};

struct StoreStatus {
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t plans = 0;
  uint64_t plan_hits = 0;
  uint64_t planned_tokens = 0;
  uint64_t moved_tokens = 0;
  uint64_t saved_blocks = 0;
  uint64_t evicted_blocks = 0;
  uint64_t damaged_blocks = 0;
  bool degraded = false;
  std::string degraded_reason;
};

class BlockStore {
 public:
  struct Options {
    std::string path;
    uint64_t budget_bytes = 0;
  };

  // Creates the folder. AlreadyExists if another process has the database open. A database that is
  // damaged beyond opening is moved aside ("<path>.damaged-<time>") and an empty one made: saved
  // state is a cache, and a missing cache must not keep anybody from working.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Open(const Options& options);
  ~BlockStore();

  // The longest prefix of the tokens that is stored in whole blocks after the root, and, if the
  // query allows it, the runs of text behind it to move here from exact blocks of the same root.
  // Tokens are compared, not only ids.
  StatePlan Plan(const PlanQuery& query);

  // NotFound if it is gone or was damaged.
  absl::StatusOr<std::string> Read(const BlockId& id);

  // True if stored, false if it was there already. FailedPrecondition if the parent is neither
  // `root` nor stored: the block could not be reached. InvalidArgument if it does not continue its
  // parent or claims to be more exact. ResourceExhausted if it is larger than the budget or the
  // disk refuses.
  absl::StatusOr<bool> Save(const BlockId& root, const BlockId& parent, uint32_t first_token,
                            std::span<const uint32_t> tokens, std::string_view data,
                            state::Lineage lineage = state::Lineage::kExact);

  uint32_t Pin(std::span<const BlockId> ids, bool pinned);
  uint64_t Delete(std::span<const BlockId> ids);
  uint64_t DeleteAll();

  absl::Status PutProfile(std::string_view name, std::string_view value);
  absl::StatusOr<std::string> GetProfile(std::string_view name);

  StoreStatus status() const;

 private:
  struct Database;
  BlockStore(Options options, std::unique_ptr<Database> database);
  absl::Status LoadIndex();
  // All with mutex_ held.
  // Evicts until `bytes` more fit; never `keep`.
  absl::Status MakeRoom(uint64_t bytes, const BlockId& keep);
  absl::Status Write(rocksdb::WriteBatch& batch);
  absl::Status Drop(std::span<const BlockId> ids);
  // The blocks from `parent` on, of `lineage`, that hold the tokens from `at` on; they may get less
  // exact on the way where that reaches further.
  std::vector<PlannedBlock> LongestPrefix(const PlanQuery& query, BlockId parent,
                                          state::Lineage lineage, size_t at) const;
  const BlockRecord* FindEqual(const BlockId& id, std::span<const uint32_t> tokens) const;
  std::vector<PlannedRun> PlanRuns(const PlanQuery& query, uint32_t known) const;
  void NoteUse(std::span<const PlannedBlock> blocks, uint64_t now, rocksdb::WriteBatch& batch);
  void AddToIndex(const BlockId& id, BlockRecord record);
  void RemoveFromIndex(const BlockId& id);

  const Options options_;
  std::unique_ptr<Database> database_;
  mutable std::mutex mutex_;
  BlockIndex index_;
  absl::flat_hash_map<BlockId, SeedIndex> seeds_;  // of exact blocks, by root: nothing is shared
  StoreStatus counters_;
  uint64_t dropped_bytes_ = 0;  // since the last compaction
};

}  // namespace strata::kvstore
