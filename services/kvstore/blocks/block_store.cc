#include "services/kvstore/blocks/block_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "services/kvstore/blocks/pins.h"

#include "absl/strings/str_cat.h"

namespace strata::kvstore {
namespace {

// Saved data is made durable at the latest when there is this much of it: waiting for the drive
// once for many megabytes costs nothing, once a block costs a quarter of its speed.
constexpr uint64_t kCommitBytes = 32 << 20;

// Deleting ten thousand blocks takes seconds; plans wait for one batch at most.
constexpr size_t kDeletedAtOnce = 256;

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
             aside, "'; it is made again from the blocks, learned profiles are lost");
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
  if (record.lineage == state::Lineage::kExact && record.kind == Kind::kBlock) {
    seeds_[record.root].Add(id, record.tokens);
  }
  latest_ms_ = std::max(latest_ms_, record.last_used_ms);
  index_.Insert(id, std::move(record));
}

void BlockStore::RemoveFromIndex(const BlockId& id) {
  const BlockRecord* record = index_.Get(id);
  if (record == nullptr) return;
  if (const auto seeds = seeds_.find(record->root); seeds != seeds_.end() &&
                                                    record->lineage == state::Lineage::kExact &&
                                                    record->kind == Kind::kBlock) {
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
                                      std::string_view data, state::Lineage lineage, Kind kind) {
  BlockRecord record{parent,      first_token,    {tokens.begin(), tokens.end()},
                     data.size(), Checksum(data), 0,
                     false,       root,           lineage};
  record.kind = kind;
  if (tokens.empty() && (kind != Kind::kCheckpoint || parent == root)) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no state before token ", first_token, " in a block of no tokens"));
  }
  const std::lock_guard writing(write_mutex_);
  // The parent may vanish at any time; the block is found by its name, which says how exact it was.
  const auto named = [&]() -> absl::StatusOr<BlockId> {
    const BlockRecord* before = parent == root ? nullptr : index_.Get(parent);
    const auto inherited = before == nullptr ? state::Lineage::kExact : before->lineage;
    const BlockId id = kind == Kind::kBlock ? state::ChildId(parent, inherited, lineage, tokens)
                                            : state::CheckpointId(parent, lineage, tokens);
    if (index_.Get(id) != nullptr) return id;
    if (parent != root && before == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("the block before token ", first_token, " is not stored"));
    }
    const size_t expected = before == nullptr ? 0 : before->end();
    if (before != nullptr && before->kind != Kind::kBlock) {
      return absl::InvalidArgumentError(
          absl::StrCat("the block at token ", first_token, " follows a checkpoint"));
    }
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
    std::optional<BlockId> known;
    if (index_.Get(id) != nullptr) {
      known = id;
    } else if (kind == Kind::kTail) {
      known = index_.Cover(parent, tokens, lineage);
    }
    if (known) {
      index_.Touch(*known, record.last_used_ms);
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
  if (kind == Kind::kCheckpoint) {
    for (const BlockId& old : index_.NoteCheckpoint(id)) used_.insert(old);
  }
  for (const BlockId& tail : index_.TailsInside(id)) replaced_.push_back(tail);
  ++counters_.saved_blocks;
  return true;
}

absl::Status BlockStore::Commit() {
  const std::lock_guard writing(write_mutex_);
  return CommitStaged();
}

absl::Status BlockStore::CommitStaged() {
  absl::Status synced = staged_.empty() ? absl::OkStatus() : segments_->Sync();
  std::unique_lock lock(mutex_);
  if (!synced.ok()) {
    NoteWrite(synced);
    for (const BlockId& id : staged_) RemoveFromIndex(id);
    staged_.clear();
    staged_bytes_ = 0;
    replaced_.clear();
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
  lock.unlock();
  return DropReplaced();
}

absl::Status BlockStore::DropReplaced() {
  if (replaced_.empty()) return absl::OkStatus();
  std::unique_lock lock(mutex_);
  IndexDatabase::Batch batch(*database_);
  std::vector<BlockId> drop;
  std::vector<Extent> places;
  for (const BlockId& id : std::exchange(replaced_, {})) {
    const BlockRecord* tail = index_.Get(id);
    if (tail == nullptr || tail->kind != Kind::kTail) continue;
    const std::optional<BlockId> cover =
        index_.Cover(tail->parent, tail->tokens, tail->lineage, id);
    if (!cover) continue;  // it was evicted again
    drop.push_back(id);
    places.push_back(tail->extent);
    batch.Remove(id);
    if (tail->pinned && !index_.Get(*cover)->pinned) {
      index_.SetPinned(*cover, true);
      batch.Put(*cover, *index_.Get(*cover));
    }
  }
  if (!batch.empty()) STRATA_RETURN_IF_ERROR(Write(batch));
  const size_t pins = index_.pinned().size();
  for (const BlockId& id : drop) RemoveFromIndex(id);
  if (index_.pinned().size() != pins) KeepPins();  // some were handed on
  lock.unlock();
  // When the text is deleted nobody knows any more that it was here as well.
  segments_->Forget(places);
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

void BlockStore::KeepPins() {
  const std::vector<BlockId> ids(index_.pinned().begin(), index_.pinned().end());
  const absl::Status kept = WritePins(PinsPath(options_.path), ids);
  if (!kept.ok()) LogWarning("pins are kept in the index only: ", kept.message());
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
  // The state in memory counts; status shows the trouble.
  if (changed > 0 && Write(batch).ok()) KeepPins();
  return changed;
}

uint64_t BlockStore::Delete(std::span<const BlockId> ids) {
  const std::lock_guard writing(write_mutex_);
  uint64_t deleted = 0;
  for (size_t at = 0; at < ids.size(); at += kDeletedAtOnce) {
    const std::span<const BlockId> some =
        ids.subspan(at, std::min(kDeletedAtOnce, ids.size() - at));
    std::vector<Extent> places;
    {
      const std::lock_guard lock(mutex_);
      IndexDatabase::Batch batch(*database_);
      const auto remove = [&](const BlockId& id) {
        const BlockRecord* record = index_.Get(id);
        if (record == nullptr) return;
        places.push_back(record->extent);
        batch.Remove(id);
        RemoveFromIndex(id);
      };
      for (const BlockId& id : some) {
        for (const BlockId& checkpoint : index_.CheckpointsOf(id)) remove(checkpoint);
        remove(id);
      }
      if (!batch.empty()) (void)Write(batch, /*durable=*/true);
    }
    segments_->Forget(places);
    deleted += places.size();
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
  status.checkpoints = index_.checkpoints();
  status.bytes = index_.bytes();
  status.budget_bytes = options_.budget_bytes;
  status.disk_bytes = segments_->disk_bytes();
  status.written_bytes = segments_->written_bytes();
  status.segments = segments_->segments();
  return status;
}

}  // namespace strata::kvstore
