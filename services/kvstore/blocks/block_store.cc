#include "services/kvstore/blocks/block_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

#include "absl/strings/str_cat.h"

namespace strata::kvstore {
namespace {

// Saved data is made durable at the latest when there is this much of it: waiting for the drive
// once for many megabytes costs nothing, once a block costs a quarter of its speed.
constexpr uint64_t kCommitBytes = 32 << 20;

constexpr uint64_t kMinSegmentBytes = 16 << 20;
constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 30;
constexpr uint64_t kSegmentsInBudget = 32;

uint64_t SystemMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Open(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.path, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot create '", options.path, "': ", error.message()));
  }
  auto store = std::unique_ptr<BlockStore>(new BlockStore(options));
  absl::Status opened = store->OpenFiles();
  if (absl::IsDataLoss(opened)) {
    const std::string aside = absl::StrCat(options.path, ".damaged-", SystemMs());
    LogError("the index at '", options.path, "' is damaged (", opened.message(), "): moved to '",
             aside, "'; it is made again from the blocks, pins and learned profiles are lost");
    store = std::unique_ptr<BlockStore>(new BlockStore(options));
    std::filesystem::rename(options.path, aside, error);
    std::filesystem::create_directories(options.path, error);
    std::filesystem::rename(aside + "/segments", options.path + "/segments", error);
    opened = store->OpenFiles();
  }
  STRATA_RETURN_IF_ERROR(opened);
  return store;
}

BlockStore::~BlockStore() {
  if (segments_ != nullptr) (void)Commit();
}

absl::Status BlockStore::OpenFiles() {
  STRATA_ASSIGN_OR_RETURN(database_, IndexDatabase::Open(options_.path));
  SegmentSet::Options segments;
  segments.folder = options_.path + "/segments";
  segments.read_only = database_->read_only();
  segments.punch_holes = options_.punch_holes;
  segments.segment_bytes = options_.segment_bytes > 0
                               ? options_.segment_bytes
                               : std::clamp(options_.budget_bytes / kSegmentsInBudget,
                                            kMinSegmentBytes, kMaxSegmentBytes);
  STRATA_ASSIGN_OR_RETURN(segments_, SegmentSet::Open(segments));
  return LoadIndex();
}

absl::Status BlockStore::Append(const BlockId& id, BlockRecord& record, std::string_view data) {
  BlockRecord description = record;
  description.extent = {};
  STRATA_ASSIGN_OR_RETURN(record.extent,
                          segments_->Append(id, EncodeRecord(description), data, record.checksum));
  return absl::OkStatus();
}

uint64_t BlockStore::Now() {
  // Where the system's clock is set back, what is used now must not look older than all the rest.
  latest_ms_ = std::max(latest_ms_ + 1, options_.now_ms ? options_.now_ms() : SystemMs());
  return latest_ms_;
}

void BlockStore::AddToIndex(const BlockId& id, BlockRecord record) {
  if (record.lineage == state::Lineage::kExact) seeds_[record.root].Add(id, record.tokens);
  latest_ms_ = std::max(latest_ms_, record.last_used_ms);
  index_.Insert(id, std::move(record));
}

void BlockStore::RemoveFromIndex(const BlockId& id) {
  const BlockRecord* record = index_.Get(id);
  if (record == nullptr) return;
  if (const auto seeds = seeds_.find(record->root); seeds != seeds_.end()) {
    seeds->second.Remove(id, record->tokens);
    if (seeds->second.grams() == 0) seeds_.erase(seeds);
  }
  segments_->Release(record->extent);
  index_.Erase(id);
}

absl::StatusOr<BlockData> BlockStore::Read(const BlockId& id) {
  for (;;) {
    Extent extent;
    uint64_t bytes = 0;
    uint64_t checksum = 0;
    {
      const std::lock_guard lock(mutex_);
      const BlockRecord* record = index_.Get(id);
      if (record == nullptr) return absl::NotFoundError(absl::StrCat("no block ", id.ToHex()));
      extent = record->extent;
      bytes = record->bytes;
      checksum = record->checksum;
    }
    absl::StatusOr<BlockData> data = segments_->Read(extent, bytes);
    if (data.ok() && Checksum(data->view()) == checksum) return data;
    const std::lock_guard lock(mutex_);
    // It may have been evicted or moved while we read.
    const BlockRecord* record = index_.Get(id);
    if (record != nullptr && record->extent != extent) continue;
    if (record != nullptr) {
      ++counters_.damaged_blocks;
      LogError("block ", id.ToHex(), " at ", extent.offset, " of segment ", extent.segment,
               " is damaged (", data.ok() ? A("wrong checksum") : data.status().message(),
               "): dropped");
      (void)Drop(std::span(&id, 1));
    }
    return absl::NotFoundError(absl::StrCat("block ", id.ToHex(), " cannot be read"));
  }
}

absl::StatusOr<bool> BlockStore::Save(const BlockId& root, const BlockId& parent,
                                      uint32_t first_token, std::span<const uint32_t> tokens,
                                      std::string_view data, state::Lineage lineage) {
  BlockRecord record{parent,      first_token,    {tokens.begin(), tokens.end()},
                     data.size(), Checksum(data), 0,
                     false,       root,           lineage};
  const std::lock_guard writing(write_mutex_);
  // The parent may vanish at any time; the block is found by its name, which says how exact it was.
  const auto named = [&]() -> absl::StatusOr<BlockId> {
    const BlockRecord* before = parent == root ? nullptr : index_.Get(parent);
    const auto inherited = before == nullptr ? state::Lineage::kExact : before->lineage;
    const BlockId id = state::ChildId(parent, inherited, lineage, tokens);
    if (index_.Get(id) != nullptr) return id;
    if (parent != root && before == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("the block before token ", first_token, " is not stored"));
    }
    const size_t expected = before == nullptr ? 0 : before->first_token + before->tokens.size();
    if (first_token != expected || lineage < inherited) {
      return absl::InvalidArgumentError(absl::StrCat("a block at token ", first_token,
                                                     " of lineage ", static_cast<int>(lineage),
                                                     " cannot follow one that ends at ", expected,
                                                     " of lineage ", static_cast<int>(inherited)));
    }
    return id;
  };
  {
    const std::lock_guard lock(mutex_);
    STRATA_ASSIGN_OR_RETURN(const BlockId id, named());
    record.last_used_ms = Now();
    if (index_.Get(id) != nullptr) {
      index_.Touch(id, record.last_used_ms);
      return false;
    }
  }
  if (staged_bytes_ >= kCommitBytes) STRATA_RETURN_IF_ERROR(CommitStaged());
  STRATA_RETURN_IF_ERROR(
      MakeRoom(SegmentSet::RecordBytes(EncodeRecord(record).size(), data.size()), parent));
  std::unique_lock lock(mutex_);
  STRATA_ASSIGN_OR_RETURN(const BlockId id, named());
  lock.unlock();
  const absl::Status appended = Append(id, record, data);
  lock.lock();
  NoteWrite(appended);
  STRATA_RETURN_IF_ERROR(appended);
  staged_.push_back(id);
  staged_bytes_ += record.extent.bytes;
  AddToIndex(id, std::move(record));
  for (const BlockId& old : index_.NoteTurn(id)) used_.insert(old);
  ++counters_.saved_blocks;
  return true;
}

absl::Status BlockStore::Commit() {
  const std::lock_guard writing(write_mutex_);
  return CommitStaged();
}

absl::Status BlockStore::CommitStaged() {
  absl::Status synced = staged_.empty() ? absl::OkStatus() : segments_->Sync();
  const std::lock_guard lock(mutex_);
  if (!synced.ok()) {
    NoteWrite(synced);
    for (const BlockId& id : staged_) RemoveFromIndex(id);
    staged_.clear();
    staged_bytes_ = 0;
    return synced;
  }
  IndexDatabase::Batch batch(*database_);
  const auto put = [&](const BlockId& id) {
    if (const BlockRecord* record = index_.Get(id)) batch.Put(id, *record);
  };
  for (const BlockId& id : staged_) put(id);
  for (const BlockId& id : used_) put(id);
  if (!batch.empty()) STRATA_RETURN_IF_ERROR(Write(batch));  // the same again next time
  staged_.clear();
  staged_bytes_ = 0;
  used_.clear();
  return absl::OkStatus();
}

absl::Status BlockStore::MakeRoom(uint64_t bytes, const BlockId& keep) {
  if (bytes > options_.budget_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a block of ", bytes, " bytes exceeds kvstore.budget_bytes = ", options_.budget_bytes));
  }
  {
    const std::lock_guard lock(mutex_);
    while (index_.bytes() + bytes > options_.budget_bytes) {
      STRATA_RETURN_IF_ERROR(EvictOne(keep));
    }
  }
  if (segments_->disk_bytes() + bytes > options_.budget_bytes) segments_->Reclaim();
  // Only where a file cannot have holes.
  while (segments_->disk_bytes() + bytes > options_.budget_bytes) {
    if (const std::optional<uint32_t> thin = segments_->Thin()) {
      MoveSegment(*thin);
    } else {
      const std::lock_guard lock(mutex_);
      STRATA_RETURN_IF_ERROR(EvictOne(keep));
    }
    segments_->Reclaim();
  }
  return absl::OkStatus();
}

absl::Status BlockStore::EvictOne(const BlockId& keep) {
  const std::optional<BlockId> victim = index_.NextVictim(Now(), keep);
  if (!victim) {
    return absl::ResourceExhaustedError(
        absl::StrCat("kvstore.budget_bytes = ", options_.budget_bytes,
                     " is full of blocks that may not be dropped"));
  }
  ++counters_.evicted_blocks;
  return Drop(std::span(&*victim, 1));
}

absl::Status BlockStore::Drop(std::span<const BlockId> ids) {
  if (ids.empty()) return absl::OkStatus();
  IndexDatabase::Batch batch(*database_);
  for (const BlockId& id : ids) {
    batch.Remove(id);
    RemoveFromIndex(id);
  }
  return Write(batch);
}

absl::Status BlockStore::Write(IndexDatabase::Batch& batch, bool durable) {
  absl::Status status = database_->Write(batch, durable);
  NoteWrite(status);
  return status;
}

void BlockStore::NoteWrite(const absl::Status& status) {
  const bool degraded = !status.ok();
  if (degraded != counters_.degraded) {
    if (degraded) {
      LogError("the disk refuses writes, nothing new is kept: ", status.message());
    } else {
      LogInfo("writes work again");
    }
  }
  counters_.degraded = degraded;
  counters_.degraded_reason = degraded ? std::string(status.message()) : "";
}

uint32_t BlockStore::Pin(std::span<const BlockId> ids, bool pinned) {
  const std::lock_guard lock(mutex_);
  IndexDatabase::Batch batch(*database_);
  uint32_t changed = 0;
  for (const BlockId& id : ids) {
    const BlockRecord* record = index_.Get(id);
    if (record == nullptr || record->pinned == pinned) continue;
    index_.SetPinned(id, pinned);
    used_.insert(id);
    ++changed;
  }
  for (const BlockId& id : ids) {
    if (const BlockRecord* record = index_.Get(id)) batch.Put(id, *record);
  }
  if (changed > 0) (void)Write(batch);  // the state in memory counts; status shows the trouble
  return changed;
}

uint64_t BlockStore::Delete(std::span<const BlockId> ids) {
  const std::lock_guard writing(write_mutex_);
  uint64_t deleted = 0;
  {
    const std::lock_guard lock(mutex_);
    IndexDatabase::Batch batch(*database_);
    for (const BlockId& id : ids) {
      const BlockRecord* record = index_.Get(id);
      if (record == nullptr) continue;
      const Extent extent = record->extent;
      batch.Remove(id);
      RemoveFromIndex(id);
      segments_->Forget(extent);
      ++deleted;
    }
    if (deleted > 0) (void)Write(batch, /*durable=*/true);
  }
  segments_->Reclaim();
  return deleted;
}

uint64_t BlockStore::DeleteAll() {
  std::vector<BlockId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = index_.All();
  }
  return Delete(ids);
}

uint64_t BlockStore::CollectGarbage() {
  const std::lock_guard writing(write_mutex_);
  uint64_t freed = segments_->Reclaim();
  while (const std::optional<uint32_t> thin = segments_->Thin()) {
    MoveSegment(*thin);
    const uint64_t more = segments_->Reclaim();
    if (more == 0) break;
    freed += more;
  }
  return freed;
}

void BlockStore::MoveSegment(uint32_t segment) {
  std::vector<std::pair<BlockId, BlockRecord>> living;
  {
    const std::lock_guard lock(mutex_);
    for (const BlockId& id : index_.All()) {
      const BlockRecord& record = *index_.Get(id);
      if (record.extent.segment == segment) living.emplace_back(id, record);
    }
  }
  std::vector<BlockId> moved;
  for (auto& [id, record] : living) {
    const Extent old = record.extent;
    const absl::StatusOr<BlockData> data = Read(id);
    if (!data.ok()) continue;  // it is dropped
    const absl::Status appended = Append(id, record, data->view());
    const std::lock_guard lock(mutex_);
    NoteWrite(appended);
    if (!appended.ok()) return;
    if (index_.Get(id) == nullptr) {
      segments_->Release(record.extent);
      continue;
    }
    index_.Move(id, record.extent);
    staged_.push_back(id);
    segments_->Release(old);
  }
  // The old place may be given back only when the new one is known for good.
  (void)CommitStaged();
}

absl::Status BlockStore::PutProfile(std::string_view name, std::string_view value) {
  const std::lock_guard lock(mutex_);
  IndexDatabase::Batch batch(*database_);
  batch.PutProfile(name, value);
  return Write(batch);
}

absl::StatusOr<std::string> BlockStore::GetProfile(std::string_view name) {
  return database_->GetProfile(name);
}

StoreStatus BlockStore::status() const {
  const std::lock_guard lock(mutex_);
  StoreStatus status = counters_;
  status.blocks = index_.size();
  status.bytes = index_.bytes();
  status.budget_bytes = options_.budget_bytes;
  status.disk_bytes = segments_->disk_bytes();
  status.written_bytes = segments_->written_bytes();
  status.segments = segments_->segments();
  return status;
}

}  // namespace strata::kvstore
