// Experts out of an expertstore's arena on the same machine.
//
// A hit costs the pin and the second look at the entry (common/shm/arena_client.h): no system call,
// no lock, no allocation. A miss costs one request and one ring of the doorbell per batch, then
// waiting. Begin, Next and End never allocate.
//
// A thread of its own watches the connection. When the store dies, a batch under way keeps what it
// holds (its memory stays mapped), its misses fail as Unavailable, and the mapping is dropped with
// the batch, so that a new store finds the memory free. The thread attaches to the new store as
// soon as it listens.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/shm/attachment.h"
#include "services/compute/experts/expert_source.h"

namespace strata::compute {

class ArenaExpertSource : public ExpertSource {
 public:
  struct Options {
    std::string attach_path;       // OpenExpertsResponse.attach_path
    shm::Fingerprint fingerprint;  // gguf::Model::Fingerprint
    int spins = 2000;              // looks at the wake word before sleeping: about 20 us
  };
  explicit ArenaExpertSource(Options options);
  ~ArenaExpertSource() override;
  ArenaExpertSource(const ArenaExpertSource&) = delete;
  ArenaExpertSource& operator=(const ArenaExpertSource&) = delete;

  void Begin(std::span<const ExpertId> experts, ExpertPriority priority) override;
  absl::StatusOr<std::span<const ReadyExpert>> Next() override;
  void End() override;
  void CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) override;
  void FindResident(uint16_t layer, std::span<uint8_t> in_memory) const override;
  bool HoldsAll() const override;
  void Promote(std::span<const ExpertId> experts) override;
  void LookAhead(std::span<const ExpertId> experts, ExpertPriority priority) override;
  void HeldElsewhere(std::span<const ExpertId> experts) override;
  absl::Status WaitUntilReady(int timeout_ms) override;
  ExpertCounters counters() const override;

 private:
  // One attachment, alive while the watcher or a batch needs it.
  struct Link {
    std::unique_ptr<shm::Attachment> attachment;
    uint64_t number = 0;  // 1, 2, ... in the order of attaching
    std::atomic<bool> dead{false};
    shm::ArenaClient& client() const { return attachment->client(); }
  };
  struct Wanted {
    uint32_t position;
    ExpertId id;
    uint32_t expert;  // number in the table
    bool sent;        // the store knows that we want it
  };

  std::shared_ptr<Link> CurrentLink() const;
  // Requests for those of `experts` that the model has and memory has or has not; returns how many.
  uint64_t Ask(const Link& link, shm::RequestOp op, ExpertPriority priority,
               std::span<const ExpertId> experts, bool in_memory);
  bool TryPin(uint32_t position, ExpertId id, uint32_t expert);
  void ReleaseHandedOut();
  // Both return whether the store should be rung.
  bool SendRequests();
  bool Collect();
  void TakeFailures();
  void Watch();

  const Options options_;

  // The step thread's own.
  std::shared_ptr<Link> link_;  // of the batch; null between batches
  uint64_t link_number_ = 0;    // of the last batch's link
  absl::Status batch_status_;
  bool sweeping_ = false;  // the store waits for our slots to read ahead for a prompt
  ExpertPriority priority_ = ExpertPriority::kDecode;
  std::vector<Wanted> wanted_;
  std::vector<ReadyExpert> ready_;  // pinned, not yet handed out
  std::vector<uint32_t> ready_slots_;
  std::vector<ReadyExpert> handed_out_;
  std::vector<uint32_t> handed_slots_;
  std::vector<uint32_t> unsent_done_;
  ExpertCounters counters_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Link> current_;  // guarded by mutex_; null while no store is attached
  absl::Status connect_status_;    // guarded by mutex_; why not
  bool stopping_ = false;          // guarded by mutex_
  std::atomic<uint64_t> connections_{0};
  std::thread watcher_;
};

}  // namespace strata::compute
