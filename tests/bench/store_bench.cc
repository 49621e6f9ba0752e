// Speed of kvstore: blocks saved and restored, and what the drive had to write for it.
//
// Run it in a folder on the drive that is to be measured; caches are not dropped: reads and writes
// go past them. `--grpc` measures through the service and a unix socket, as compute sees it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "services/compute/service/kv_client.h"
#include "services/kvstore/blocks/block_store.h"
#include "services/kvstore/service/kvstore_service.h"
#include "tests/bench/speed.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"

ABSL_FLAG(std::string, folder, "store_bench.tmp", "where the store is made; removed afterwards");
ABSL_FLAG(int, block_mb, 4, "bytes of a block");
ABSL_FLAG(int, blocks, 200, "blocks saved");
ABSL_FLAG(int, budget_blocks, 0, "blocks that fit; 0 = all");
ABSL_FLAG(bool, grpc, false, "through the service");
ABSL_FLAG(
    int, index_blocks, 0,
    "instead: so many blocks of a few bytes, in conversations of 64, for the time of a plan and "
    "of a start. 200,000 blocks of 1 MB are 200 GB; they take 1.6 GB here.");

namespace strata::bench {
namespace {

constexpr uint32_t kTokens = 256;
constexpr int kChain = 64;                 // blocks of a conversation
constexpr uint64_t kMaxBehind = 64 << 20;  // bytes that the client has queued

// What this process had the kernel write to drives.
uint64_t WrittenBytes() {
  std::ifstream io("/proc/self/io");
  std::string key;
  for (uint64_t value = 0; io >> key >> value;) {
    if (key == "write_bytes:") return value;
  }
  return 0;
}

std::vector<uint32_t> TokensOf(int block) {
  std::vector<uint32_t> tokens(kTokens);
  for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<uint32_t>(block) * kTokens + i;
  return tokens;
}

class Bench {
 public:
  explicit Bench(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    *key_.mutable_fingerprint()->mutable_hash() = "model";
    *key_.mutable_layout()->mutable_hash() = "layout";
    key_.mutable_layout()->set_block_tokens(kTokens);
    data_.resize(static_cast<size_t>(absl::GetFlag(FLAGS_block_mb)) << 20);
    std::mt19937_64 random(1);
    for (size_t i = 0; i + 8 <= data_.size(); i += 8) {
      const uint64_t value = random();
      std::memcpy(data_.data() + i, &value, 8);
    }
  }
  ~Bench() {
    server_.reset();
    service_.reset();
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  int RunIndex(int blocks) {
    kvstore::BlockStore::Options options;
    options.path = folder_ + "/kv";
    options.budget_bytes = uint64_t{1} << 40;
    store_ = *kvstore::BlockStore::Open(options);
    const auto tokens_of = [](int conversation) {
      // The first eight blocks are everybody's.
      std::vector<uint32_t> tokens(kChain * kTokens);
      std::mt19937 random(static_cast<uint32_t>(conversation));
      for (size_t i = 0; i < tokens.size(); ++i) {
        const uint32_t own = random() % 100'000;
        tokens[i] = i < 8 * kTokens ? static_cast<uint32_t>(i) : own;
      }
      return tokens;
    };
    const int conversations = blocks / kChain;
    for (int c = 0; c < conversations; ++c) {
      const std::vector<uint32_t> tokens = tokens_of(c);
      BlockId parent = root_;
      for (uint32_t at = 0; at < tokens.size(); at += kTokens) {
        const auto own = std::span(tokens).subspan(at, kTokens);
        (void)store_->Save(root_, parent, at, own, "data");
        parent = state::ChildId(parent, own);
      }
    }
    store_.reset();
    const Stopwatch start;
    store_ = *kvstore::BlockStore::Open(options);
    std::printf("%llu blocks of %d tokens: opened in %.1f s\n",
                static_cast<unsigned long long>(store_->status().blocks), kTokens, start.Seconds());
    std::mt19937 random(1);
    for (const bool stored : {true, false}) {
      std::vector<double> times;
      for (int pass = 0; pass < 200; ++pass) {
        const int conversation = static_cast<int>(random() % static_cast<uint32_t>(conversations));
        const std::vector<uint32_t> prompt = tokens_of(stored ? conversation : -1 - pass);
        const Stopwatch watch;
        const kvstore::StatePlan plan = store_->Plan({root_, prompt, kTokens});
        times.push_back(watch.Seconds());
        if (plan.blocks.size() != (stored ? kChain : 8)) std::fprintf(stderr, "a wrong plan\n");
      }
      std::sort(times.begin(), times.end());
      std::printf("plan of %d tokens, %s: median %.3f ms, slowest of 200 %.3f ms\n",
                  kChain * kTokens, stored ? "all stored" : "2,048 stored", 1e3 * times[100],
                  1e3 * times.back());
    }
    return 0;
  }

  int Run() {
    const int blocks = absl::GetFlag(FLAGS_blocks);
    const int fit = absl::GetFlag(FLAGS_budget_blocks);
    const double megabytes = static_cast<double>(data_.size()) * blocks / 1e6;
    kvstore::BlockStore::Options options;
    options.path = folder_ + "/kv";
    options.budget_bytes =
        kvstore::SegmentSet::RecordBytes(8000, data_.size()) * (fit > 0 ? fit : 2 * blocks);
    auto opened = kvstore::BlockStore::Open(options);
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", std::string(opened.status().message()).c_str());
      return 1;
    }
    store_ = *std::move(opened);
    service_ = std::make_unique<kvstore::KvStoreService>(*store_, folder_, 64);
    grpc::Service* const services[] = {service_.get()};
    const std::string address = "unix:" + folder_ + "/s";
    server_ = *rpc::Server::Start(address, {}, services);
    compute::KvClient client(*rpc::Connect(address, {}), key_.fingerprint(), key_.layout());

    MeasureDrive(blocks);
    const bool grpc = absl::GetFlag(FLAGS_grpc);
    const uint64_t before = WrittenBytes();
    const double save = grpc ? SaveByClient(blocks) : Save(blocks);
    const uint64_t written = WrittenBytes() - before;
    const kvstore::StoreStatus status = store_->status();
    std::vector<uint32_t> prompt;
    for (int i = 0; i < blocks; ++i) {
      const auto own = TokensOf(i);
      prompt.insert(prompt.end(), own.begin(), own.end());
    }
    const kvstore::StatePlan plan = store_->Plan({root_, prompt, kTokens});
    const double restore = grpc ? RestoreByClient(client, plan) : Restore(plan);
    const double save_rate = megabytes / save;
    const double restore_rate =
        static_cast<double>(plan.blocks.size() * data_.size()) / 1e6 / restore;
    std::printf("the drive alone: write %.0f MB/s, read %.0f MB/s\n", write_rate_, read_rate_);
    std::printf(
        "%d blocks of %d MB%s: save %.0f MB/s (%.2f), restore %.0f MB/s (%.2f); written %.3f times "
        "what was saved\n",
        blocks, absl::GetFlag(FLAGS_block_mb), grpc ? " through gRPC" : "", save_rate,
        save_rate / write_rate_, restore_rate, restore_rate / read_rate_,
        static_cast<double>(written) / 1e6 / megabytes);
    std::printf("evicted %llu, segments %llu\n",
                static_cast<unsigned long long>(status.evicted_blocks),
                static_cast<unsigned long long>(status.segments));
    return 0;
  }

 private:
  // One file, direct, in one go and in pieces of a block: what there is to reach.
  void MeasureDrive(int blocks) {
    auto file = kvstore::SegmentFile::Open(folder_ + "/raw", kvstore::SegmentFile::Mode::kWrite);
    kvstore::AlignedBuffer buffer(data_.size());
    std::memcpy(buffer.data(), data_.data(), data_.size());
    const double megabytes = static_cast<double>(data_.size()) * blocks / 1e6;
    const Stopwatch write;
    for (int i = 0; i < blocks; ++i) {
      (void)file->Write(data_.size() * static_cast<uint64_t>(i), buffer.data(), buffer.size());
    }
    (void)file->Sync();
    write_rate_ = megabytes / write.Seconds();
    const Stopwatch read;
    for (int i = 0; i < blocks; ++i) {
      (void)file->Read(data_.size() * static_cast<uint64_t>(i), buffer.data(), buffer.size());
    }
    read_rate_ = megabytes / read.Seconds();
    std::filesystem::remove(folder_ + "/raw");
  }
  double Save(int blocks) {
    const Stopwatch watch;
    BlockId parent = root_;
    for (int i = 0; i < blocks; ++i) {
      const auto own = TokensOf(i);
      // With a small budget: conversations of one block, so that there is something to evict.
      const bool chain = absl::GetFlag(FLAGS_budget_blocks) == 0;
      if (!chain) parent = root_;
      const auto saved =
          store_->Save(root_, parent, chain ? static_cast<uint32_t>(i) * kTokens : 0, own, View());
      if (!saved.ok()) std::fprintf(stderr, "%s\n", std::string(saved.status().message()).c_str());
      parent = state::ChildId(parent, own);
    }
    (void)store_->Commit();
    return watch.Seconds();
  }
  double SaveByClient(int blocks) {
    const Stopwatch watch;
    auto client = std::make_unique<compute::KvClient>(*rpc::Connect("unix:" + folder_ + "/s", {}),
                                                      key_.fingerprint(), key_.layout());
    BlockId parent = root_;
    for (int i = 0; i < blocks; ++i) {
      compute::SavedBlock block;
      block.first_token = static_cast<uint32_t>(i) * kTokens;
      block.tokens = TokensOf(i);
      block.parent = parent;
      block.id = parent = state::ChildId(parent, block.tokens);
      block.bytes = data_;
      client->Save(std::move(block));
      // Beyond its queue the client drops blocks.
      while ((static_cast<uint64_t>(i) - store_->status().saved_blocks) * data_.size() >
             kMaxBehind) {
        usleep(200);
      }
    }
    client.reset();  // sends what is queued
    return watch.Seconds();
  }
  double Restore(const kvstore::StatePlan& plan) {
    const Stopwatch watch;
    for (const kvstore::PlannedBlock& block : plan.blocks) {
      if (!store_->Read(block.id).ok()) std::fprintf(stderr, "a block is gone\n");
    }
    return watch.Seconds();
  }
  double RestoreByClient(compute::KvClient& client, const kvstore::StatePlan& plan) {
    v1::RestorePlan request;
    for (const kvstore::PlannedBlock& block : plan.blocks) {
      v1::BlockRef& ref = *request.add_blocks();
      ref.set_id(block.id.ToString());
      ref.set_bytes(block.bytes);
    }
    const Stopwatch watch;
    client.Restore(request, "bench", [](std::vector<std::byte>) { return true; });
    return watch.Seconds();
  }
  std::string_view View() const {
    return {reinterpret_cast<const char*>(data_.data()), data_.size()};
  }

  using BlockId = state::BlockId;
  const std::string folder_;
  const BlockId root_ = state::RootId("model", "layout", "");
  v1::StateKey key_;
  std::vector<std::byte> data_;
  double write_rate_ = 0;
  double read_rate_ = 0;
  std::unique_ptr<kvstore::BlockStore> store_;
  std::unique_ptr<kvstore::KvStoreService> service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  strata::bench::Bench bench(absl::GetFlag(FLAGS_folder));
  const int index_blocks = absl::GetFlag(FLAGS_index_blocks);
  return index_blocks > 0 ? bench.RunIndex(index_blocks) : bench.Run();
}
