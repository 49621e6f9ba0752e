// Stores of other versions. The writer of version 2 here is independent of the store's code.
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "services/kvstore/blocks/store_fixture.h"

namespace strata::kvstore {
namespace {

class OldFormatTest : public StoreFixture {
 protected:
  template <typename T>
  static void Append(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  // Version 2: data and records in column families of one database.
  void WriteVersion2(const std::vector<uint32_t>& tokens, size_t bytes, size_t damaged = SIZE_MAX) {
    rocksdb::DBOptions options;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    rocksdb::ColumnFamilyOptions blobs;
    blobs.enable_blob_files = true;
    blobs.min_blob_size = 4096;
    const std::vector<rocksdb::ColumnFamilyDescriptor> families{
        {"default", {}},       {"blocks", blobs}, {"index", {}},
        {"conversations", {}}, {"replay", {}},    {"profile", {}}};
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status opened = rocksdb::DB::Open(options, path_, families, &handles, &db);
    ASSERT_TRUE(opened.ok()) << opened.ToString();
    BlockId parent = root_;
    for (size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
      const auto own = std::span(tokens).subspan(at, kBlock);
      const BlockId id = state::ChildId(parent, own);
      std::string data = Data(id, bytes);
      std::string record;
      Append(record, uint8_t{2});
      record += parent.ToString();
      Append(record, static_cast<uint32_t>(at));
      Append(record, uint64_t{data.size()});
      Append(record, static_cast<uint64_t>(XXH3_64bits(data.data(), data.size())));
      Append(record, uint64_t{1'700'000'000'000});
      Append(record, uint8_t{at == 0});  // pinned
      record += root_.ToString();
      Append(record, uint8_t{0});
      Append(record, kBlock);
      for (const uint32_t t : own) Append(record, t);
      Append(record, static_cast<uint64_t>(XXH3_64bits(record.data(), record.size())));
      if (at / kBlock == damaged) data[100] ^= 1;
      db->Put({}, handles[1], id.ToString(), data);
      db->Put({}, handles[2], id.ToString(), record);
      parent = id;
    }
    db->Put({}, handles[5], "experts/m", "learned");
    for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
    db->Close();
    delete db;
  }
  static uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
  static void MakeVersion3(char* record, size_t size) {
    ASSERT_EQ(record[0], 4);
    record[0] = 3;
    const uint64_t checksum = Hash({record, size - sizeof(uint64_t)});
    std::memcpy(record + size - sizeof(checksum), &checksum, sizeof(checksum));
  }
  // Turns a closed store without checkpoints into what version 3 wrote: only the records' version
  // differs, in the index and beside the data.
  void TurnIntoVersion3() {
    EditIndex([&](rocksdb::DB& db, const auto& families) {
      const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}, families.at("index")));
      for (it->SeekToFirst(); it->Valid(); it->Next()) {
        std::string record = it->value().ToString();
        MakeVersion3(record.data(), record.size());
        db.Put({}, families.at("index"), it->key(), record);
      }
      db.Put({}, "format", "3");
    });
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/segments")) {
      std::string bytes(entry.file_size(), '\0');
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      for (size_t at = 0; at < bytes.size(); at += 24'576) {
        char* const header = bytes.data() + at;
        uint32_t size = 0;
        std::memcpy(&size, header + 12, sizeof(size));
        MakeVersion3(header + 64, size);
        const uint64_t own = Hash({header, 56});
        const uint64_t checksum = XXH3_64bits_withSeed(header + 64, size, own);
        std::memcpy(header + 56, &checksum, sizeof(checksum));
      }
      file.seekp(0);
      file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
  void EditIndex(
      const std::function<void(rocksdb::DB&,
                               const std::map<std::string, rocksdb::ColumnFamilyHandle*>&)>& edit) {
    std::vector<std::string> names;
    rocksdb::DB::ListColumnFamilies({}, path_, &names);
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) {
      families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    }
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open({}, path_, families, &handles, &db).ok());
    std::map<std::string, rocksdb::ColumnFamilyHandle*> by_name;
    for (size_t i = 0; i < names.size(); ++i) by_name[names[i]] = handles[i];
    edit(*db, by_name);
    for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
    db->Close();
    delete db;
  }
  size_t Restored(const std::vector<uint32_t>& tokens, size_t bytes) {
    size_t good = 0;
    for (const PlannedBlock& block : Plan(tokens).blocks) {
      const auto data = store_->Read(block.id);
      if (!data.ok()) break;
      EXPECT_EQ(data->view(), Data(block.id, bytes));
      ++good;
    }
    return good;
  }
};

TEST_F(OldFormatTest, Version2IsMoved) {
  WriteVersion2(Tokens(40), 50'000);
  for (int restarts = 0; restarts < 2; ++restarts) {
    Open();
    EXPECT_EQ(Restored(Tokens(40), 50'000), 10u);
    EXPECT_EQ(store_->status().blocks, 10u);
    EXPECT_EQ(*store_->GetProfile("experts/m"), "learned");
  }
  const BlockId first = Plan(Tokens(40)).blocks[0].id;
  EXPECT_EQ(store_->Pin(std::span(&first, 1), false), 1u) << "it was pinned";
  uint64_t blobs = 0;
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().extension() == ".blob") blobs += file.file_size();
  }
  EXPECT_EQ(blobs, 0u) << "the old place was given back";
}

TEST_F(OldFormatTest, DamageInVersion2CostsOnlyThatBlock) {
  WriteVersion2(Tokens(40), 50'000, /*damaged=*/6);
  Open();
  EXPECT_EQ(store_->status().blocks, 9u);
  EXPECT_EQ(Restored(Tokens(40), 50'000), 6u);
  SaveAll(Tokens(40), 50'000);
  EXPECT_EQ(Restored(Tokens(40), 50'000), 10u);
}

TEST_F(OldFormatTest, Version2ThatIsTooLargeKeepsItsBeginnings) {
  WriteVersion2(Tokens(40), 50'000);
  Open(300'000);
  EXPECT_EQ(Restored(Tokens(40), 50'000), 5u);
  EXPECT_LE(store_->status().disk_bytes, 300'000u);
}

TEST_F(OldFormatTest, Version3IsReadAsItIs) {
  for (const bool index : {true, false}) {
    Open();
    SaveAll(Tokens(16));
    store_.reset();
    TurnIntoVersion3();
    if (!index) {  // and is made again from segments of version 3
      for (const auto& file : std::filesystem::directory_iterator(path_)) {
        if (file.is_regular_file()) std::filesystem::remove(file.path());
      }
    }
    for (int restarts = 0; restarts < 2; ++restarts) {
      Open();
      EXPECT_EQ(Restored(Tokens(16), 20'000), 4u);
      EXPECT_EQ(store_->status().damaged_blocks, 0u);
      SaveAll(Tokens(18));
      EXPECT_EQ(Plan(Tokens(18)).reused_tokens, 18u);
    }
    store_.reset();
    EditIndex([&](rocksdb::DB& db, const auto&) {
      std::string format;
      db.Get({}, "format", &format);
      EXPECT_EQ(format, "4") << "a release that knows no checkpoints must refuse it";
    });
    std::filesystem::remove_all(path_);
  }
}

TEST_F(OldFormatTest, ANewerStoreIsRefusedAndLeftAlone) {
  Open();
  SaveAll(Tokens(16));
  store_.reset();
  const auto mark = [&](const char* format) {
    EditIndex([&](rocksdb::DB& db, const auto&) { db.Put({}, "format", format); });
  };
  mark("5");
  BlockStore::Options options;
  options.budget_bytes = 1 << 30;
  const absl::Status status = TryOpen(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("format 5"), absl::string_view::npos) << status;
  mark("4");
  Open();
  EXPECT_EQ(Restored(Tokens(16), 20'000), 4u);
}

}  // namespace
}  // namespace strata::kvstore
