// The kvstore daemon as the engine's StateStore. Includes gRPC headers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "services/compute/state/state_store.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::compute {

class KvClient final : public StateStore {
 public:
  // Bytes of blocks on the way to the store; beyond that new ones are dropped.
  static constexpr uint64_t kMaxQueuedBytes = uint64_t{256} << 20;

  // A store that sends nothing for longer than this is treated as gone: reading is faster. A drive
  // may have to wake up first.
  static constexpr std::chrono::milliseconds kPatience{10'000};

  KvClient(std::shared_ptr<grpc::Channel> channel, v1::ModelFingerprint fingerprint,
           v1::StateLayout layout, std::chrono::milliseconds patience = kPatience);
  ~KvClient() override;

  void Restore(const v1::RestorePlan& plan, std::string_view request_id,
               absl::FunctionRef<bool(std::vector<std::byte>)> take) override;
  void Save(SavedBlock block) override;
  bool connected() const override { return connected_; }

 private:
  void Run();
  // One Save stream with all blocks of one tenant at the queue's front.
  bool SendBatch(const std::deque<std::shared_ptr<const SavedBlock>>& batch);

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<grpc::Channel> channel_;
  const v1::ModelFingerprint fingerprint_;
  const v1::StateLayout layout_;
  std::atomic<bool> connected_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const SavedBlock>> queue_;
  uint64_t queued_bytes_ = 0;
  uint64_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace strata::compute
