#include "services/kvstore/blocks/block_store.h"

#include <rocksdb/db.h>
#include <rocksdb/experimental.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::kvstore {
namespace {

enum Family { kDefault, kBlocks, kIndex, kConversations, kReplay, kProfile, kFamilies };
constexpr std::array<const char*, kFamilies> kFamilyNames = {"default",       "blocks", "index",
                                                             "conversations", "replay", "profile"};

// A use is written down only if the last one noted is older: plans touch hundreds of blocks.
constexpr uint64_t kTouchResolutionMs = 60'000;
// Evicted data is reclaimed from blob files when it makes up this share of the budget.
constexpr double kCompactionShare = 0.1;

uint64_t NowMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

rocksdb::Slice AsSlice(std::string_view s) { return {s.data(), s.size()}; }

rocksdb::Slice Key(const BlockId& id) {
  return {reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()};
}

absl::Status FromRocks(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(A(what), ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsCorruption()) return absl::DataLossError(message);
  return absl::InternalError(message);
}

rocksdb::ColumnFamilyOptions OptionsOf(Family family) {
  rocksdb::ColumnFamilyOptions options;
  if (family == kBlocks) {
    options.enable_blob_files = true;
    options.min_blob_size = 4096;
    options.enable_blob_garbage_collection = true;
    options.blob_garbage_collection_age_cutoff = 1.0;       // any file may be cleaned,
    options.blob_garbage_collection_force_threshold = 0.5;  // as soon as half of it is garbage
    options.compression = rocksdb::kNoCompression;          // K/V values do not compress
    options.write_buffer_size = 64 << 20;
  }
  return options;
}

}  // namespace

struct BlockStore::Database {
  std::unique_ptr<rocksdb::DB> db;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> family{};

  ~Database() {
    if (db == nullptr) return;
    for (rocksdb::ColumnFamilyHandle* handle : family) {
      if (handle != nullptr) db->DestroyColumnFamilyHandle(handle);
    }
    db->Close();
  }

  static rocksdb::Status Open(const std::string& path, std::unique_ptr<Database>& result) {
    rocksdb::DBOptions options;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    // Data of all families is in one log, so a process that is killed loses nothing it had written.
    options.max_total_wal_size = 256 << 20;
    options.keep_log_file_num = 3;
    options.max_open_files = 256;
    std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
    descriptors.reserve(kFamilies);
    for (int f = 0; f < kFamilies; ++f) {
      descriptors.emplace_back(kFamilyNames[static_cast<size_t>(f)],
                               OptionsOf(static_cast<Family>(f)));
    }
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    rocksdb::Status status = rocksdb::DB::Open(options, path, descriptors, &handles, &db);
    if (!status.ok()) return status;
    result = std::make_unique<Database>();
    result->db.reset(db);
    std::copy(handles.begin(), handles.end(), result->family.begin());
    return status;
  }
};

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Open(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.path, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot create '", options.path, "': ", error.message()));
  }
  std::unique_ptr<Database> database;
  rocksdb::Status opened = Database::Open(options.path, database);
  if (opened.IsIOError() && opened.ToString().find("lock") != std::string::npos) {
    return absl::AlreadyExistsError(
        absl::StrCat("another kvstore has '", options.path, "' open (", opened.ToString(), ")"));
  }
  if (opened.IsCorruption()) {
    const std::string aside = absl::StrCat(options.path, ".damaged-", NowMs());
    LogError("the database at '", options.path, "' is damaged (", opened.ToString(),
             "): moved to '", aside, "', starting with an empty one");
    std::filesystem::rename(options.path, aside, error);
    std::filesystem::create_directories(options.path, error);
    opened = Database::Open(options.path, database);
  }
  STRATA_RETURN_IF_ERROR(
      FromRocks(opened, absl::StrCat("cannot open the database at '", options.path, "'")));
  auto store = std::unique_ptr<BlockStore>(new BlockStore(options, std::move(database)));
  STRATA_RETURN_IF_ERROR(store->LoadIndex());
  return store;
}

BlockStore::BlockStore(Options options, std::unique_ptr<Database> database)
    : options_(std::move(options)), database_(std::move(database)) {}

BlockStore::~BlockStore() = default;

absl::Status BlockStore::LoadIndex() {
  std::vector<BlockId> unreadable;
  const std::unique_ptr<rocksdb::Iterator> it(
      database_->db->NewIterator(rocksdb::ReadOptions(), database_->family[kIndex]));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    const std::optional<BlockId> id = state::BlockIdFromRaw({it->key().data(), it->key().size()});
    if (!id) continue;
    std::optional<BlockRecord> record = DecodeRecord({it->value().data(), it->value().size()});
    if (record) {
      AddToIndex(*id, *std::move(record));
    } else {
      unreadable.push_back(*id);
    }
  }
  STRATA_RETURN_IF_ERROR(FromRocks(it->status(), "cannot read the block index"));
  const std::lock_guard lock(mutex_);
  counters_.damaged_blocks += unreadable.size();
  STRATA_RETURN_IF_ERROR(Drop(unreadable));
  return MakeRoom(0, {});  // the budget may be smaller than last time
}

StatePlan BlockStore::Plan(const PlanQuery& query) {
  const std::lock_guard lock(mutex_);
  const uint64_t now = NowMs();
  StatePlan plan;
  plan.blocks = LongestPrefix(query, query.root, state::Lineage::kExact, 0);
  BlockId last = query.root;
  if (!plan.blocks.empty()) {
    last = plan.blocks.back().id;
    plan.reused_tokens = plan.blocks.back().first_token + plan.blocks.back().tokens;
  }
  plan.first_different_token =
      plan.reused_tokens + static_cast<uint32_t>(index_.LongestStart(
                               last, query.tokens.subspan(plan.reused_tokens), query.accept));
  if (query.move) plan.runs = PlanRuns(query, plan.reused_tokens);

  rocksdb::WriteBatch uses;
  NoteUse(plan.blocks, now, uses);
  for (const PlannedRun& run : plan.runs) {
    plan.moved_tokens += run.tokens;
    NoteUse(run.blocks, now, uses);
  }
  if (uses.Count() > 0) (void)Write(uses);  // a lost note only ages the blocks
  ++counters_.plans;
  counters_.plan_hits += plan.blocks.empty() && plan.runs.empty() ? 0 : 1;
  counters_.planned_tokens += plan.reused_tokens;
  counters_.moved_tokens += plan.moved_tokens;
  return plan;
}

const BlockRecord* BlockStore::FindEqual(const BlockId& id,
                                         std::span<const uint32_t> tokens) const {
  const BlockRecord* record = index_.Get(id);
  if (record == nullptr) return nullptr;
  const auto& own = record->tokens;
  return std::equal(own.begin(), own.end(), tokens.begin(), tokens.end()) ? record : nullptr;
}

std::vector<PlannedBlock> BlockStore::LongestPrefix(const PlanQuery& query, BlockId parent,
                                                    state::Lineage lineage, size_t at) const {
  std::vector<PlannedBlock> path;
  const auto reach = [&](const std::vector<PlannedBlock>& blocks) {
    return blocks.empty() ? at : blocks.back().first_token + blocks.back().tokens;
  };
  const uint32_t count = query.block_tokens;
  struct Fork {
    size_t length;  // of the path before it
    std::vector<PlannedBlock> blocks;
  };
  std::optional<Fork> best_fork;
  for (size_t first = at; count > 0 && first + count <= query.tokens.size(); first += count) {
    const std::span<const uint32_t> own = query.tokens.subspan(first, count);
    for (const auto other : {state::Lineage::kSafe, state::Lineage::kFast}) {
      if (other <= lineage || other > query.accept) continue;
      const BlockId id = state::ChildId(parent, lineage, other, own);
      const BlockRecord* record = FindEqual(id, own);
      if (record == nullptr) continue;
      Fork fork{path.size(), {{id, static_cast<uint32_t>(first), count, record->bytes, other}}};
      const auto rest = LongestPrefix(query, id, other, first + count);
      fork.blocks.insert(fork.blocks.end(), rest.begin(), rest.end());
      if (!best_fork || reach(fork.blocks) > reach(best_fork->blocks)) best_fork = std::move(fork);
    }
    const BlockId id = state::ChildId(parent, own);
    const BlockRecord* record = FindEqual(id, own);
    if (record == nullptr) break;
    path.push_back({id, static_cast<uint32_t>(first), count, record->bytes, lineage});
    parent = id;
  }
  if (best_fork && reach(best_fork->blocks) > reach(path)) {
    path.resize(best_fork->length);
    path.insert(path.end(), best_fork->blocks.begin(), best_fork->blocks.end());
  }
  return path;
}

std::vector<PlannedRun> BlockStore::PlanRuns(const PlanQuery& query, uint32_t known) const {
  std::vector<PlannedRun> runs;
  const auto seeds = seeds_.find(query.root);
  if (seeds == seeds_.end()) return runs;
  for (const MovedRun& moved :
       Align(seeds->second, index_, query.tokens, known, query.line_starts, query.align)) {
    PlannedRun run{moved.first_token, moved.tokens, moved.old_first_token, {}};
    for (const BlockId& id : moved.blocks) {
      const BlockRecord& record = *index_.Get(id);
      run.blocks.push_back({id, record.first_token, static_cast<uint32_t>(record.tokens.size()),
                            record.bytes, record.lineage});
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

void BlockStore::NoteUse(std::span<const PlannedBlock> blocks, uint64_t now,
                         rocksdb::WriteBatch& batch) {
  for (const PlannedBlock& block : blocks) {
    const bool note = now - index_.Get(block.id)->last_used_ms > kTouchResolutionMs;
    index_.Touch(block.id, now);
    if (note) {
      batch.Put(database_->family[kIndex], Key(block.id), EncodeRecord(*index_.Get(block.id)));
    }
  }
}

void BlockStore::AddToIndex(const BlockId& id, BlockRecord record) {
  if (record.lineage == state::Lineage::kExact) seeds_[record.root].Add(id, record.tokens);
  index_.Insert(id, std::move(record));
}

void BlockStore::RemoveFromIndex(const BlockId& id) {
  const BlockRecord* record = index_.Get(id);
  if (record == nullptr) return;
  if (const auto seeds = seeds_.find(record->root); seeds != seeds_.end()) {
    seeds->second.Remove(id, record->tokens);
    if (seeds->second.grams() == 0) seeds_.erase(seeds);
  }
  index_.Erase(id);
}

absl::StatusOr<std::string> BlockStore::Read(const BlockId& id) {
  uint64_t expected_bytes = 0;
  uint64_t expected_checksum = 0;
  {
    const std::lock_guard lock(mutex_);
    const BlockRecord* record = index_.Get(id);
    if (record == nullptr) return absl::NotFoundError(absl::StrCat("no block ", id.ToHex()));
    expected_bytes = record->bytes;
    expected_checksum = record->checksum;
  }
  std::string data;
  const rocksdb::Status status =
      database_->db->Get(rocksdb::ReadOptions(), database_->family[kBlocks], Key(id), &data);
  if (status.ok() && data.size() == expected_bytes &&
      XXH3_64bits(data.data(), data.size()) == expected_checksum) {
    return data;
  }
  const std::lock_guard lock(mutex_);
  // It may have been evicted while we read: only then its record is gone as well.
  if (index_.Get(id) != nullptr) {
    ++counters_.damaged_blocks;
    LogError("block ", id.ToHex(), " is damaged (",
             status.ok() ? "wrong checksum" : status.ToString(), "): dropped");
    (void)Drop(std::span(&id, 1));
  }
  return absl::NotFoundError(absl::StrCat("block ", id.ToHex(), " cannot be read"));
}

absl::StatusOr<bool> BlockStore::Save(const BlockId& root, const BlockId& parent,
                                      uint32_t first_token, std::span<const uint32_t> tokens,
                                      std::string_view data, state::Lineage lineage) {
  const uint64_t checksum = XXH3_64bits(data.data(), data.size());
  const std::lock_guard lock(mutex_);
  const BlockRecord* before = parent == root ? nullptr : index_.Get(parent);
  const state::Lineage inherited = before == nullptr ? state::Lineage::kExact : before->lineage;
  const BlockId id = state::ChildId(parent, inherited, lineage, tokens);
  if (index_.Get(id) != nullptr) {
    index_.Touch(id, NowMs());
    return false;
  }
  if (parent != root && before == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the block before token ", first_token, " is not stored"));
  }
  const size_t expected = before == nullptr ? 0 : before->first_token + before->tokens.size();
  if (first_token != expected || lineage < inherited) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a block at token ", first_token, " of lineage ", static_cast<int>(lineage),
        " cannot follow one that ends at ", expected, " of lineage ", static_cast<int>(inherited)));
  }
  STRATA_RETURN_IF_ERROR(MakeRoom(data.size(), parent));
  BlockRecord record{parent,      first_token, {tokens.begin(), tokens.end()},
                     data.size(), checksum,    NowMs(),
                     false,       root,        lineage};
  rocksdb::WriteBatch batch;
  batch.Put(database_->family[kBlocks], Key(id), AsSlice(data));
  batch.Put(database_->family[kIndex], Key(id), EncodeRecord(record));
  STRATA_RETURN_IF_ERROR(Write(batch));
  AddToIndex(id, std::move(record));
  ++counters_.saved_blocks;
  return true;
}

absl::Status BlockStore::MakeRoom(uint64_t bytes, const BlockId& keep) {
  if (bytes > options_.budget_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a block of ", bytes, " bytes exceeds kvstore.budget_bytes = ", options_.budget_bytes));
  }
  while (index_.bytes() + bytes > options_.budget_bytes) {
    const std::optional<BlockId> victim = index_.NextVictim(keep);
    if (!victim) {
      return absl::ResourceExhaustedError(
          absl::StrCat("kvstore.budget_bytes = ", options_.budget_bytes,
                       " is full of blocks that may not be dropped"));
    }
    STRATA_RETURN_IF_ERROR(Drop(std::span(&*victim, 1)));
    ++counters_.evicted_blocks;
  }
  return absl::OkStatus();
}

absl::Status BlockStore::Drop(std::span<const BlockId> ids) {
  if (ids.empty()) return absl::OkStatus();
  rocksdb::WriteBatch batch;
  for (const BlockId& id : ids) {
    batch.Delete(database_->family[kBlocks], Key(id));
    batch.Delete(database_->family[kIndex], Key(id));
    if (const BlockRecord* record = index_.Get(id)) dropped_bytes_ += record->bytes;
    RemoveFromIndex(id);
  }
  STRATA_RETURN_IF_ERROR(Write(batch));
  if (static_cast<double>(dropped_bytes_) >
      kCompactionShare * static_cast<double>(options_.budget_bytes)) {
    dropped_bytes_ = 0;
    // Blob garbage is counted by compaction: run one in the background.
    (void)rocksdb::experimental::SuggestCompactRange(database_->db.get(),
                                                     database_->family[kBlocks], nullptr, nullptr);
  }
  return absl::OkStatus();
}

absl::Status BlockStore::Write(rocksdb::WriteBatch& batch) {
  rocksdb::Status status = database_->db->Write(rocksdb::WriteOptions(), &batch);
  // After a full disk RocksDB refuses writes until it is told that there is space again.
  if (!status.ok() && database_->db->Resume().ok()) {
    status = database_->db->Write(rocksdb::WriteOptions(), &batch);
  }
  const bool degraded = !status.ok();
  if (degraded != counters_.degraded) {
    if (degraded) {
      LogError("the disk refuses writes, nothing new is kept: ", status.ToString());
    } else {
      LogInfo("writes work again");
    }
  }
  counters_.degraded = degraded;
  counters_.degraded_reason = degraded ? status.ToString() : "";
  return FromRocks(status, "cannot write");
}

uint32_t BlockStore::Pin(std::span<const BlockId> ids, bool pinned) {
  const std::lock_guard lock(mutex_);
  rocksdb::WriteBatch batch;
  uint32_t changed = 0;
  for (const BlockId& id : ids) {
    const BlockRecord* record = index_.Get(id);
    if (record == nullptr || record->pinned == pinned) continue;
    index_.SetPinned(id, pinned);
    batch.Put(database_->family[kIndex], Key(id), EncodeRecord(*index_.Get(id)));
    ++changed;
  }
  if (changed > 0) (void)Write(batch);  // the state in memory counts; status shows the trouble
  return changed;
}

uint64_t BlockStore::Delete(std::span<const BlockId> ids) {
  const std::lock_guard lock(mutex_);
  std::vector<BlockId> known;
  for (const BlockId& id : ids) {
    if (index_.Get(id) != nullptr) known.push_back(id);
  }
  (void)Drop(known);
  return known.size();
}

uint64_t BlockStore::DeleteAll() {
  std::vector<BlockId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = index_.All();
  }
  return Delete(ids);
}

absl::Status BlockStore::PutProfile(std::string_view name, std::string_view value) {
  const std::lock_guard lock(mutex_);
  rocksdb::WriteBatch batch;
  batch.Put(database_->family[kProfile], AsSlice(name), AsSlice(value));
  return Write(batch);
}

absl::StatusOr<std::string> BlockStore::GetProfile(std::string_view name) {
  std::string value;
  STRATA_RETURN_IF_ERROR(
      FromRocks(database_->db->Get(rocksdb::ReadOptions(), database_->family[kProfile],
                                   AsSlice(name), &value),
                absl::StrCat("profile '", A(name), "'")));
  return value;
}

StoreStatus BlockStore::status() const {
  const std::lock_guard lock(mutex_);
  StoreStatus status = counters_;
  status.blocks = index_.size();
  status.bytes = index_.bytes();
  status.budget_bytes = options_.budget_bytes;
  return status;
}

}  // namespace strata::kvstore
