// The commands against a kvstore in this process.
#include "cli/cache_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/test_folder.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "services/kvstore/service/kvstore_service.h"

#include "absl/strings/escaping.h"

namespace strata::cli {
namespace {

using kvstore::BlockId;
using kvstore::BlockStore;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kBlock = 4;

class CacheCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    BlockStore::Options options;
    options.path = folder_ / "kv";
    options.budget_bytes = 1 << 30;
    options.now_ms = [] { return uint64_t{1'000'000}; };
    store_ = *BlockStore::Open(options);
    service_ = std::make_unique<kvstore::KvStoreService>(*store_, options.path, 64);
    grpc::Service* const services[] = {service_.get()};
    server_ = *rpc::Server::Start("unix:" + folder_ / "s", {}, services);
    stub_ = v1::KvStore::NewStub(*rpc::Connect("unix:" + folder_ / "s", {}));
    Save("a shared start. and then this");
    Save("a shared start, but then that");
  }
  void TearDown() override {
    server_.reset();
    service_.reset();
    store_.reset();
  }
  // One token a character.
  void Save(std::string_view text) {
    BlockId parent = root_;
    for (uint32_t at = 0; at + kBlock <= text.size(); at += kBlock) {
      const std::vector<uint32_t> own(text.begin() + at, text.begin() + at + kBlock);
      ASSERT_TRUE(store_->Save(root_, parent, at, own, std::string(100'000, 'x')).ok());
      parent = state::ChildId(parent, own);
    }
    ends_.push_back(absl::BytesToHexString(parent.ToString()));
    ASSERT_TRUE(store_->Commit().ok());
  }
  absl::Status Run(const std::vector<std::string>& arguments) {
    std::ostringstream out;
    CacheContext context;
    context.kvstore = stub_.get();
    context.out = &out;
    context.text = [](std::span<const uint32_t> ids) {
      return std::string(ids.begin(), ids.end());
    };
    context.now_ms = 1'000'000 + 3 * 3'660'000;
    const absl::Status status = RunCacheCommand(context, arguments);
    out_ = out.str();
    return status;
  }

  const TestFolder folder_;
  const BlockId root_ = state::RootId("model", "layout", "");
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<kvstore::KvStoreService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::KvStore::Stub> stub_;
  std::vector<std::string> ends_;
  std::string out_;
};

TEST_F(CacheCommandsTest, ListsWhatIsThere) {
  ASSERT_TRUE(Run({"list"}).ok());
  EXPECT_THAT(out_, HasSubstr(ends_[0].substr(0, 12)));
  EXPECT_THAT(out_, HasSubstr(ends_[1].substr(0, 12)));
  EXPECT_THAT(out_, HasSubstr("rt, but then"));
  EXPECT_THAT(out_, HasSubstr("3 h"));
  EXPECT_THAT(out_, HasSubstr("2 conversations, 11 blocks"));
}

TEST_F(CacheCommandsTest, ShowsOne) {
  ASSERT_TRUE(Run({"show", ends_[0].substr(0, 8)}).ok());
  EXPECT_THAT(out_, HasSubstr(ends_[0]));
  EXPECT_THAT(out_, HasSubstr("28 in 7 blocks, the last 4 its own"));
  EXPECT_THAT(out_, HasSubstr("tokens 24 to 27"));
  EXPECT_EQ(Run({"show", "zz"}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Run({"show", ""}).code(), absl::StatusCode::kInvalidArgument) << "both";
}

TEST_F(CacheCommandsTest, PinsAndDropsOnlyWhatIsItsOwn) {
  ASSERT_TRUE(Run({"pin", ends_[0]}).ok());
  EXPECT_THAT(out_, HasSubstr("is now pinned"));
  ASSERT_TRUE(Run({"list"}).ok());
  EXPECT_THAT(out_, HasSubstr("[pinned]"));
  ASSERT_TRUE(Run({"unpin", ends_[0]}).ok());
  ASSERT_TRUE(Run({"unpin", ends_[0]}).ok());
  EXPECT_THAT(out_, HasSubstr("was not pinned"));
  ASSERT_TRUE(Run({"drop", ends_[0]}).ok());
  EXPECT_THAT(out_, HasSubstr("dropped 4 blocks"));
  EXPECT_EQ(store_->status().blocks, 7u);
  ASSERT_TRUE(Run({"drop", "all"}).ok());
  EXPECT_THAT(out_, HasSubstr("dropped 7 blocks"));
}

TEST_F(CacheCommandsTest, VerifiesAndCollects) {
  ASSERT_TRUE(Run({"verify"}).ok());
  EXPECT_THAT(out_, HasSubstr("11 blocks, 1.1 MB read, 0 damaged"));
  ASSERT_TRUE(Run({"gc"}).ok());
  EXPECT_THAT(out_, HasSubstr("in use"));
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "kv/segments")) {
    std::fstream f(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(50'000);
    f.put('y');
  }
  EXPECT_EQ(Run({"verify"}).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(out_, HasSubstr("1 damaged and dropped"));
}

TEST_F(CacheCommandsTest, SaysWhatItUnderstands) {
  EXPECT_EQ(Run({"lost"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Run({"show"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Run({"gc", "now"}).code(), absl::StatusCode::kInvalidArgument);
  server_.reset();
  EXPECT_EQ(Run({"list"}).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace strata::cli
