// The index on disk: RocksDB, small values only.
//
// Column families: `index` id -> BlockRecord, `profile` name -> learned data of other daemons. In a
// store of version 3 all records are blocks. One of version 2 held the blocks' data in a further
// one, `blocks`; it is read here until everything has been moved (see OldData). Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "services/kvstore/blocks/block_record.h"

#include "absl/status/statusor.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class WriteBatch;
}  // namespace rocksdb

namespace strata::kvstore {

class IndexDatabase {
 public:
  // Changes that are made together or not at all.
  class Batch {
   public:
    explicit Batch(IndexDatabase& database);
    ~Batch();
    void Put(const BlockId& id, const BlockRecord& record);
    void Remove(const BlockId& id);
    void PutProfile(std::string_view name, std::string_view value);
    bool empty() const;

   private:
    friend class IndexDatabase;
    IndexDatabase& database_;
    std::unique_ptr<rocksdb::WriteBatch> batch_;
  };

  // Creates it. AlreadyExists if another process has it open, DataLoss if it is damaged,
  // FailedPrecondition if a newer release wrote it. A folder that cannot be written is opened for
  // reading.
  static absl::StatusOr<std::unique_ptr<IndexDatabase>> Open(const std::string& path);
  ~IndexDatabase();

  bool read_only() const { return read_only_; }
  // There was none.
  bool created() const { return created_; }

  // DataLoss if it cannot be read to its end.
  absl::Status ForEach(
      const std::function<void(std::string_view key, std::string_view value)>& use);
  // `durable`: also after a power failure; otherwise only after the end of this process.
  absl::Status Write(Batch& batch, bool durable = false);
  absl::StatusOr<std::string> GetProfile(std::string_view name);

  // Data of version 2.
  bool HasOldData() const;
  absl::StatusOr<std::string> OldData(const BlockId& id);
  absl::Status DropOldData();

 private:
  IndexDatabase() = default;
  rocksdb::ColumnFamilyHandle* Family(std::string_view name) const;

  std::unique_ptr<rocksdb::DB> db_;
  std::map<std::string, rocksdb::ColumnFamilyHandle*, std::less<>> families_;
  bool read_only_ = false;
  bool created_ = false;
};

}  // namespace strata::kvstore
