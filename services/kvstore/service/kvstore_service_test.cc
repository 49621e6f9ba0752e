// The service over a real socket, with compute's client on the other side.
#include "services/kvstore/service/kvstore_service.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/base/test_folder.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "services/compute/service/kv_client.h"

namespace strata::kvstore {
namespace {

constexpr uint32_t kBlock = 4;

class KvStoreServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    *key_.mutable_fingerprint()->mutable_hash() = "model";
    *key_.mutable_layout()->mutable_hash() = "layout";
    key_.mutable_layout()->set_block_tokens(kBlock);
    Start();
  }
  void TearDown() override { Stop(); }
  void Start() {
    auto store = BlockStore::Open({folder_ / "kv", 1 << 30});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    service_ = std::make_unique<KvStoreService>(*store_, folder_.path(), /*min_run_tokens=*/64);
    grpc::Service* const services[] = {service_.get()};
    auto server = rpc::Server::Start("unix:" + folder_ / "s", {}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Stop() {
    server_.reset();
    service_.reset();
    store_.reset();
  }
  std::shared_ptr<grpc::Channel> Channel() { return *rpc::Connect("unix:" + folder_ / "s", {}); }
  std::vector<uint32_t> Tokens(uint32_t n) {
    std::vector<uint32_t> tokens(n);
    for (uint32_t i = 0; i < n; ++i) tokens[i] = i;
    return tokens;
  }
  std::vector<std::byte> Data(uint32_t first) {  // more than one chunk
    return std::vector<std::byte>(2'500'000 + first, static_cast<std::byte>(first));
  }
  void SaveAll(compute::KvClient& client, uint32_t n) {
    state::BlockId parent = state::RootId("model", "layout", "");
    const std::vector<uint32_t> tokens = Tokens(n);
    for (uint32_t at = 0; at + kBlock <= n; at += kBlock) {
      compute::SavedBlock block;
      block.first_token = at;
      block.tokens.assign(tokens.begin() + at, tokens.begin() + at + kBlock);
      block.parent = parent;
      block.id = parent = state::ChildId(parent, block.tokens);
      block.bytes = Data(at);
      client.Save(std::move(block));
    }
    compute::SavedBlock tail;
    tail.first_token = n / kBlock * kBlock;
    tail.tokens.assign(tokens.begin() + tail.first_token, tokens.end());
    if (tail.tokens.empty()) return;
    tail.parent = parent;
    tail.bytes = Data(tail.first_token);
    tail.checkpoint = true;
    client.Save(std::move(tail));
  }
  v1::PlanResponse Plan(uint32_t n) {
    v1::PlanRequest request;
    *request.mutable_key() = key_;
    for (const uint32_t t : Tokens(n)) request.mutable_tokens()->add_ids(t);
    grpc::ClientContext context;
    v1::PlanResponse response;
    const auto status = v1::KvStore::NewStub(Channel())->Plan(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  const TestFolder folder_;
  v1::StateKey key_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<KvStoreService> service_;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(KvStoreServiceTest, SavedBlocksComeBackAfterARestart) {
  {
    compute::KvClient client(Channel(), key_.fingerprint(), key_.layout());
    SaveAll(client, 18);
  }  // the destructor sends what is queued
  Stop();
  Start();
  const v1::PlanResponse plan = Plan(40);
  EXPECT_EQ(plan.plan().reused_tokens(), 18u);
  EXPECT_EQ(plan.plan().blocks_size(), 4);
  EXPECT_EQ(plan.plan().tail().tokens(), 2u);
  EXPECT_TRUE(plan.plan().tail().checkpoint());
  EXPECT_EQ(plan.first_different_token(), 18u);

  compute::KvClient client(Channel(), key_.fingerprint(), key_.layout());
  uint32_t at = 0;
  client.Restore(plan.plan(), "r", [&](std::vector<std::byte> bytes) {
    EXPECT_EQ(bytes, Data(at));
    at += kBlock;
    return true;
  });
  EXPECT_EQ(at, 20u) << "the checkpoint comes last";
  EXPECT_TRUE(client.connected());
}

// What compute's client does by hand, an ordinary stub does as well.
TEST_F(KvStoreServiceTest, AnOrdinaryStubSavesAndRestores) {
  const auto stub = v1::KvStore::NewStub(Channel());
  v1::SaveRequest message;
  v1::SaveResponse saved;
  {
    grpc::ClientContext context;
    const auto writer = stub->Save(&context, &saved);
    *message.mutable_key() = key_;
    writer->Write(message);
    message.Clear();
    for (const uint32_t t : Tokens(kBlock)) message.mutable_block()->mutable_tokens()->add_ids(t);
    message.mutable_block()->set_parent(state::RootId("model", "layout", "").ToString());
    message.mutable_block()->set_bytes(10'000);
    message.set_data(std::string(6'000, 'a'));
    writer->Write(message);
    message.Clear();
    message.set_data(std::string(4'000, 'b'));
    writer->Write(message);
    writer->WritesDone();
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_EQ(saved.stored(), 1u);
  v1::RestoreRequest request;
  *request.mutable_plan() = Plan(5).plan();
  grpc::ClientContext context;
  const auto reader = stub->Restore(&context, request);
  v1::StateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_EQ(chunk.data(), std::string(6'000, 'a') + std::string(4'000, 'b'));
  EXPECT_TRUE(chunk.last());
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(KvStoreServiceTest, RestoreStopsWhereABlockIsGone) {
  compute::KvClient client(Channel(), key_.fingerprint(), key_.layout());
  {
    compute::KvClient saver(Channel(), key_.fingerprint(), key_.layout());
    SaveAll(saver, 16);
  }
  const v1::PlanResponse plan = Plan(16);
  ASSERT_EQ(plan.plan().blocks_size(), 4);
  const auto third = state::BlockIdFromRaw(plan.plan().blocks(2).id());
  store_->Delete(std::span(&*third, 1));
  int blocks = 0;
  client.Restore(plan.plan(), "r", [&](std::vector<std::byte>) {
    ++blocks;
    return true;
  });
  EXPECT_EQ(blocks, 2);
}

TEST_F(KvStoreServiceTest, ClientSurvivesAStoreThatIsAway) {
  compute::KvClient client(Channel(), key_.fingerprint(), key_.layout());
  Stop();
  SaveAll(client, 8);
  int blocks = 0;
  v1::RestorePlan plan;
  plan.add_blocks();
  client.Restore(plan, "r", [&](std::vector<std::byte>) { return ++blocks > 0; });
  EXPECT_EQ(blocks, 0);
  EXPECT_FALSE(client.connected());
  Start();
}

TEST_F(KvStoreServiceTest, ConversationsAreListedVerifiedAndCollected) {
  {
    compute::KvClient client(Channel(), key_.fingerprint(), key_.layout());
    SaveAll(client, 16);
  }
  // One that goes another way after 8 tokens.
  BlockId parent = state::RootId("model", "layout", "");
  const std::vector<uint32_t> first = Tokens(8);
  for (const uint32_t at : {0u, 4u}) {
    parent = state::ChildId(parent, std::span(first).subspan(at, kBlock));
  }
  const std::vector<uint32_t> other = {70, 71, 72, 73};
  ASSERT_TRUE(*store_->Save(state::RootId("model", "layout", ""), parent, 8, other, "data"));

  const auto stub = v1::KvStore::NewStub(Channel());
  v1::ListRequest request;
  request.set_tokens(3);
  request.set_chains(true);
  v1::ListResponse list;
  grpc::ClientContext list_context;
  ASSERT_TRUE(stub->List(&list_context, request, &list).ok());
  ASSERT_EQ(list.conversations_size(), 2);
  const v1::Conversation& newest = list.conversations(0);
  EXPECT_EQ(newest.tokens(), 12u);
  EXPECT_EQ(newest.blocks(), 3u);
  EXPECT_EQ(newest.own_blocks(), 1u);
  EXPECT_EQ(newest.chain_size(), 3);
  EXPECT_EQ(newest.own_tokens().ids_size(), 3);
  EXPECT_EQ(newest.own_tokens().ids(0), 70u);
  EXPECT_EQ(list.conversations(1).tokens(), 16u);
  EXPECT_EQ(list.conversations(1).own_blocks(), 2u);
  EXPECT_EQ(list.conversations(1).own_tokens().ids(0), 8u);

  // Where a prompt goes another way, the plan says what stands there; asking changes nothing.
  v1::PlanRequest plan_request;
  *plan_request.mutable_key() = key_;
  for (const uint32_t t : {0, 1, 2, 3, 4, 5, 6, 7, 70, 71, 99}) {
    plan_request.mutable_tokens()->add_ids(t);
  }
  plan_request.set_dry_run(true);
  v1::PlanResponse plan;
  grpc::ClientContext plan_context;
  ASSERT_TRUE(stub->Plan(&plan_context, plan_request, &plan).ok());
  EXPECT_EQ(plan.plan().reused_tokens(), 10u) << "rows can be cut";
  EXPECT_EQ(plan.first_different_token(), 10u);
  EXPECT_EQ(plan.conversation(), newest.id());
  ASSERT_EQ(plan.stored_instead().ids_size(), 2);
  EXPECT_EQ(plan.stored_instead().ids(0), 72u);
  EXPECT_EQ(store_->status().plans, 0u);

  v1::VerifyResponse verified;
  grpc::ClientContext verify_context;
  const auto reader = stub->Verify(&verify_context, {});
  while (reader->Read(&verified)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(verified.blocks(), 5u);
  EXPECT_EQ(verified.total_blocks(), 5u);
  EXPECT_EQ(verified.damaged(), 0u);

  v1::CollectGarbageResponse collected;
  grpc::ClientContext collect_context;
  ASSERT_TRUE(stub->CollectGarbage(&collect_context, {}, &collected).ok());
  EXPECT_EQ(collected.disk_bytes(), store_->status().bytes);
}

TEST_F(KvStoreServiceTest, BadStreamsAreRefused) {
  const auto save = [&](const std::vector<v1::SaveRequest>& messages) {
    grpc::ClientContext context;
    v1::SaveResponse response;
    const auto stub = v1::KvStore::NewStub(Channel());
    const auto writer = stub->Save(&context, &response);
    for (const v1::SaveRequest& m : messages) writer->Write(m);
    writer->WritesDone();
    return writer->Finish().error_code();
  };
  v1::SaveRequest header;
  *header.mutable_key() = key_;
  v1::SaveRequest block;
  block.mutable_block()->mutable_tokens()->add_ids(1);
  block.mutable_block()->set_parent(state::RootId("model", "layout", "").ToString());
  block.mutable_block()->set_bytes(10);
  block.set_data("12345");
  v1::SaveRequest more;
  more.set_data("678901");
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(save({block}), invalid) << "no key";
  EXPECT_EQ(save({header, more}), invalid) << "no block";
  EXPECT_EQ(save({header, block}), invalid) << "incomplete";
  EXPECT_EQ(save({header, block, more}), invalid) << "too long";
  v1::SaveRequest huge = block;
  huge.mutable_block()->set_bytes(uint64_t{1} << 40);
  EXPECT_EQ(save({header, huge}), invalid);
  v1::SaveRequest orphan = block;
  orphan.mutable_block()->set_parent("short");
  EXPECT_EQ(save({header, orphan}), invalid);
  EXPECT_EQ(store_->status().blocks, 0u);
}

}  // namespace
}  // namespace strata::kvstore
