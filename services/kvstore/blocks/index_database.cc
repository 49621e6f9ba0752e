#include "services/kvstore/blocks/index_database.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace strata::kvstore {
namespace {

constexpr std::string_view kIndex = "index";
constexpr std::string_view kProfile = "profile";
constexpr std::string_view kOldData = "blocks";
// Under this key the default family says how the rest is to be read.
constexpr std::string_view kFormatKey = "format";
constexpr int kFormat = 4;  // 3 knew no checkpoints

rocksdb::Slice AsSlice(std::string_view s) { return {s.data(), s.size()}; }

rocksdb::Slice Key(const BlockId& id) {
  return {reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()};
}

absl::Status FromRocks(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = status.ToString();
  const std::string message = absl::StrCat(A(what), ": ", text);
  if (status.IsNotFound()) return absl::NotFoundError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsCorruption()) return absl::DataLossError(message);
  // A file that another one names is not there.
  if (status.IsIOError() && absl::StrContains(text, "No such file")) {
    return absl::DataLossError(message);
  }
  return absl::InternalError(message);
}

rocksdb::ColumnFamilyOptions OptionsOf(std::string_view family) {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = 16 << 20;
  if (family == kOldData) options.enable_blob_files = true;
  return options;
}

}  // namespace

IndexDatabase::Batch::Batch(IndexDatabase& database)
    : database_(database), batch_(std::make_unique<rocksdb::WriteBatch>()) {}

IndexDatabase::Batch::~Batch() = default;

void IndexDatabase::Batch::Put(const BlockId& id, const BlockRecord& record) {
  batch_->Put(database_.Family(kIndex), Key(id), EncodeRecord(record));
}

void IndexDatabase::Batch::Remove(const BlockId& id) {
  batch_->Delete(database_.Family(kIndex), Key(id));
}

void IndexDatabase::Batch::PutProfile(std::string_view name, std::string_view value) {
  batch_->Put(database_.Family(kProfile), AsSlice(name), AsSlice(value));
}

bool IndexDatabase::Batch::empty() const { return batch_->Count() == 0; }

rocksdb::ColumnFamilyHandle* IndexDatabase::Family(std::string_view name) const {
  const auto it = families_.find(name);
  return it == families_.end() ? nullptr : it->second;
}

IndexDatabase::~IndexDatabase() {
  if (db_ == nullptr) return;
  for (const auto& [name, handle] : families_) db_->DestroyColumnFamilyHandle(handle);
  db_->Close();
}

absl::StatusOr<std::unique_ptr<IndexDatabase>> IndexDatabase::Open(const std::string& path) {
  const std::string what = absl::StrCat("cannot open the database at '", path, "'");
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_total_wal_size = 64 << 20;
  options.keep_log_file_num = 3;
  options.max_open_files = 256;
  std::vector<std::string> names;
  const rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(options, path, &names);
  const bool exists = access(absl::StrCat(path, "/CURRENT").c_str(), F_OK) == 0;
  if (exists) STRATA_RETURN_IF_ERROR(FromRocks(listed, what));
  for (const std::string_view needed : {std::string_view("default"), kIndex, kProfile}) {
    if (std::find(names.begin(), names.end(), needed) == names.end()) names.emplace_back(needed);
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  descriptors.reserve(names.size());
  for (const std::string& name : names) descriptors.emplace_back(name, OptionsOf(name));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  auto result = std::unique_ptr<IndexDatabase>(new IndexDatabase());
  result->created_ = !exists;
  result->read_only_ = exists && access(path.c_str(), W_OK) != 0;
  const rocksdb::Status opened =
      result->read_only_ ? rocksdb::DB::OpenForReadOnly(options, path, descriptors, &handles, &db)
                         : rocksdb::DB::Open(options, path, descriptors, &handles, &db);
  if (opened.IsIOError() && absl::StrContains(opened.ToString(), "lock")) {
    return absl::AlreadyExistsError(
        absl::StrCat("another kvstore has '", path, "' open (", opened.ToString(), ")"));
  }
  STRATA_RETURN_IF_ERROR(FromRocks(opened, what));
  result->db_.reset(db);
  for (size_t i = 0; i < names.size(); ++i) result->families_[names[i]] = handles[i];

  std::string format;
  const rocksdb::Status known = db->Get(rocksdb::ReadOptions(), AsSlice(kFormatKey), &format);
  if (!known.ok() && !known.IsNotFound()) return FromRocks(known, what);
  int version = 0;
  if (known.ok() && (!absl::SimpleAtoi(format, &version) || version > kFormat)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store at '", path, "' has format ", format, "; this release knows ",
                     kFormat, ": set kvstore.path to another folder, or remove this one"));
  }
  if (version != kFormat && !result->read_only_) {
    const rocksdb::Status marked =
        db->Put(rocksdb::WriteOptions(), AsSlice(kFormatKey), absl::StrCat(kFormat));
    STRATA_RETURN_IF_ERROR(FromRocks(marked, what));
  }
  return result;
}

absl::Status IndexDatabase::ForEach(
    const std::function<void(std::string_view, std::string_view)>& use) {
  const std::unique_ptr<rocksdb::Iterator> it(
      db_->NewIterator(rocksdb::ReadOptions(), Family(kIndex)));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    use({it->key().data(), it->key().size()}, {it->value().data(), it->value().size()});
  }
  return FromRocks(it->status(), "cannot read the block index");
}

absl::Status IndexDatabase::Write(Batch& batch, bool durable) {
  if (read_only_) return absl::FailedPreconditionError("the folder can only be read");
  rocksdb::WriteOptions options;
  options.sync = durable;
  rocksdb::Status status = db_->Write(options, batch.batch_.get());
  // After a full disk RocksDB refuses writes until it is told that there is space again.
  if (!status.ok() && db_->Resume().ok()) status = db_->Write(options, batch.batch_.get());
  return FromRocks(status, "cannot write to the index");
}

absl::StatusOr<std::string> IndexDatabase::GetProfile(std::string_view name) {
  std::string value;
  STRATA_RETURN_IF_ERROR(
      FromRocks(db_->Get(rocksdb::ReadOptions(), Family(kProfile), AsSlice(name), &value),
                absl::StrCat("profile '", A(name), "'")));
  return value;
}

bool IndexDatabase::HasOldData() const { return Family(kOldData) != nullptr; }

absl::StatusOr<std::string> IndexDatabase::OldData(const BlockId& id) {
  std::string value;
  STRATA_RETURN_IF_ERROR(
      FromRocks(db_->Get(rocksdb::ReadOptions(), Family(kOldData), Key(id), &value),
                absl::StrCat("block ", id.ToHex())));
  return value;
}

absl::Status IndexDatabase::DropOldData() {
  const auto it = families_.find(kOldData);
  const rocksdb::Status dropped = db_->DropColumnFamily(it->second);
  db_->DestroyColumnFamilyHandle(it->second);
  families_.erase(it);
  return FromRocks(dropped, "cannot give back the old store's space");
}

}  // namespace strata::kvstore
