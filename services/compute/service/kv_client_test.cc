// The client against a store that misbehaves; against the real one: kvstore_service_test.
#include "services/compute/service/kv_client.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/base/test_folder.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"

namespace strata::compute {
namespace {

using std::chrono::milliseconds;

// Sends `blocks` blocks of one byte, then, if it hangs, nothing until the caller gives up.
class FakeStore final : public v1::KvStore::Service {
 public:
  grpc::Status Restore(grpc::ServerContext* context, const v1::RestoreRequest*,
                       grpc::ServerWriter<v1::StateChunk>* writer) override {
    for (uint32_t i = 0; i < blocks; ++i) {
      v1::StateChunk chunk;
      chunk.set_block(i + first);
      chunk.set_data("x");
      chunk.set_last(true);
      writer->Write(chunk);
    }
    while (hangs && !context->IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    return grpc::Status::OK;
  }
  uint32_t blocks = 3;
  uint32_t first = 0;
  bool hangs = false;
};

class KvClientTest : public testing::Test {
 protected:
  void Start() {
    grpc::Service* const services[] = {&store_};
    auto server = rpc::Server::Start(address_, {}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // The number of blocks that came before `wanted` of them, or the end.
  int Restore(KvClient& client, int wanted = 100) {
    int count = 0;
    client.Restore({}, "request", [&](const std::vector<std::byte>& block) {
      EXPECT_EQ(block.size(), 1u);
      return ++count < wanted;
    });
    return count;
  }
  KvClient Client(milliseconds patience = KvClient::kPatience) {
    return {*rpc::Connect(address_, {}), {}, {}, patience};
  }

  const TestFolder folder_;
  const std::string address_ = "unix:" + folder_ / "s";
  FakeStore store_;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(KvClientTest, TakesWhatComes) {
  Start();
  KvClient client = Client();
  EXPECT_EQ(Restore(client), 3);
  EXPECT_EQ(Restore(client, 2), 2);
  EXPECT_TRUE(client.connected());
  store_.first = 1;
  EXPECT_EQ(Restore(client), 0) << "the first is missing";
  EXPECT_TRUE(client.connected());
}

TEST_F(KvClientTest, GivesAStoreUpThatHangs) {
  Start();
  store_.hangs = true;
  KvClient client = Client(milliseconds(500));
  EXPECT_EQ(Restore(client), 3);
  EXPECT_FALSE(client.connected());
  store_.blocks = 0;
  EXPECT_EQ(Restore(client), 0);
  store_.hangs = false;
  store_.blocks = 2;
  EXPECT_EQ(Restore(client), 2);
  EXPECT_TRUE(client.connected());
}

TEST_F(KvClientTest, ACallerThatTakesItsTimeIsNotAStoreThatHangs) {
  Start();
  KvClient client = Client(milliseconds(500));
  int count = 0;
  client.Restore({}, "request", [&](const std::vector<std::byte>&) {
    std::this_thread::sleep_for(milliseconds(600));
    ++count;
    return true;
  });
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(client.connected());
}

TEST_F(KvClientTest, NoStoreIsNoReasonToWait) {
  KvClient client = Client();
  EXPECT_EQ(Restore(client), 0);
  EXPECT_FALSE(client.connected());
}

}  // namespace
}  // namespace strata::compute
