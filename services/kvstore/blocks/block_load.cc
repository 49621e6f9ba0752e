// BlockStore at start: the index from the database, what it has not heard of from the segments, and
// the blocks of older stores.
#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "services/kvstore/blocks/block_store.h"
#include "services/kvstore/blocks/pins.h"

namespace strata::kvstore {

absl::Status BlockStore::LoadIndex() {
  std::vector<std::pair<BlockId, BlockRecord>> old;
  std::vector<BlockId> unreadable;
  uint64_t lost = 0;
  STRATA_RETURN_IF_ERROR(database_->ForEach([&](std::string_view key, std::string_view value) {
    const std::optional<BlockId> id = state::BlockIdFromRaw(key);
    if (!id) return;
    std::optional<BlockRecord> record = DecodeRecord(value);
    if (record && record->extent.bytes == 0 && database_->HasOldData()) {
      old.emplace_back(*id, *std::move(record));
    } else if (record && segments_->Adopt(record->extent)) {
      AddToIndex(*id, *std::move(record));
    } else {
      lost += record ? 1 : 0;
      unreadable.push_back(*id);
    }
  }));
  if (lost > 0) LogWarning("the data of ", lost, " blocks is not there any more: dropped");
  if (database_->read_only()) {
    const std::lock_guard lock(mutex_);
    NoteWrite(
        absl::FailedPreconditionError(absl::StrCat("'", options_.path, "' can only be read")));
    return absl::OkStatus();
  }
  AdoptTail();
  if (database_->created()) RestorePins();
  segments_->CountDead();
  {
    const std::lock_guard lock(mutex_);
    counters_.damaged_blocks += unreadable.size() - lost;
    STRATA_RETURN_IF_ERROR(Drop(unreadable));
  }
  if (database_->HasOldData()) MoveOldBlocks(std::move(old));
  const std::lock_guard writing(write_mutex_);
  return MakeRoom(0, {});  // the budget may be smaller than last time
}

void BlockStore::RestorePins() {
  for (const BlockId& id : ReadPins(PinsPath(options_.path))) {
    if (index_.Get(id) == nullptr) continue;
    index_.SetPinned(id, true);
    used_.insert(id);
  }
}

void BlockStore::AdoptTail() {
  uint64_t adopted = 0;
  const absl::Status scanned = segments_->ScanTail([&](const FoundRecord& found) {
    std::optional<BlockRecord> record = DecodeRecord(found.description);
    if (!record || index_.Get(found.id) != nullptr || record->bytes != found.data_bytes ||
        record->checksum != found.data_checksum) {
      return;
    }
    // The others were durable before the next segment was begun.
    if (segments_->IsLast(found.extent.segment)) {
      const absl::StatusOr<BlockData> data = segments_->Read(found.extent, found.data_bytes);
      if (!data.ok() || Checksum(data->view()) != found.data_checksum) return;
    }
    record->extent = found.extent;
    if (!segments_->Adopt(found.extent)) return;
    staged_.push_back(found.id);
    AddToIndex(found.id, *std::move(record));
    // Of tails that were replaced only the index knew.
    for (const BlockId& tail : index_.TailsInside(found.id)) replaced_.push_back(tail);
    replaced_.push_back(found.id);
    ++adopted;
  });
  if (!scanned.ok()) LogWarning("looking for newer blocks: ", scanned.message());
  if (adopted > 0) LogInfo("found ", adopted, " blocks that the index had not heard of");
}

void BlockStore::MoveOldBlocks(std::vector<std::pair<BlockId, BlockRecord>> old) {
  const std::lock_guard writing(write_mutex_);
  // What was used last is worth most if not all of it fits.
  std::sort(old.begin(), old.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.last_used_ms, b.second.first_token) >
           std::pair(b.second.last_used_ms, a.second.first_token);
  });
  LogInfo("moving ", old.size(), " blocks of a store of version 2 into segments");
  uint64_t moved = 0;
  std::vector<BlockId> lost;
  absl::Status status;
  for (auto& [id, record] : old) {
    if (index_.Get(id) != nullptr) {  // an earlier attempt ended before its commit
      staged_.push_back(id);
      ++moved;
      continue;
    }
    const absl::StatusOr<std::string> data = database_->OldData(id);
    const bool good =
        data.ok() && data->size() == record.bytes && Checksum(*data) == record.checksum;
    const uint64_t bytes = SegmentSet::RecordBytes(EncodeRecord(record).size(), record.bytes);
    const bool fits = index_.bytes() + bytes <= options_.budget_bytes;
    if (good && fits && status.ok()) status = Append(id, record, *data);
    if (!good || !fits || !status.ok()) {
      lost.push_back(id);
      continue;
    }
    staged_.push_back(id);
    const std::lock_guard lock(mutex_);
    AddToIndex(id, std::move(record));
    ++moved;
  }
  const absl::Status committed = CommitStaged();
  if (status.ok()) status = committed;
  const std::lock_guard lock(mutex_);
  NoteWrite(status);
  if (!committed.ok()) return;  // tried again at the next start
  (void)Drop(lost);
  const absl::Status dropped = database_->DropOldData();
  LogInfo("moved ", moved, " blocks of version 2; ", lost.size(),
          " were damaged or found no room and are read again when they are needed",
          status.ok() ? "" : ": ", status.message(), dropped.ok() ? "" : "; ", dropped.message());
}

}  // namespace strata::kvstore
