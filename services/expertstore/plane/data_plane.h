// The expert store without its RPC service: arena, table, reads, attach socket and the one thread
// that moves them. Free of gRPC, so all of it runs under ThreadSanitizer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/memory_map.h"
#include "common/base/unique_fd.h"
#include "common/gguf/expert_geometry.h"
#include "common/policy/eviction_policy.h"
#include "common/policy/hotness.h"
#include "common/shm/attach_server.h"
#include "common/shm/table.h"
#include "services/expertstore/arena/arena.h"
#include "services/expertstore/arena/slot_plan.h"
#include "services/expertstore/io/model_files.h"
#include "services/expertstore/io/read_engine.h"
#include "services/expertstore/io/read_queue.h"
#include "services/expertstore/plane/residency.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

// How rows of experts lie in the arena (common/quant/weight_layout.h) if no pack says it.
enum class SlotLayout {
  kAsRead,
  kInterleaved,       // arranged after every read
  kInterleavedIfAll,  // only if the arena holds all experts, so that each is read once
};

struct DataPlaneOptions {
  gguf::ExpertGeometry geometry;
  // Copies of the model's files on other drives, or packs of it (then `mirrors` is not used).
  std::vector<std::vector<std::string>> mirrors;
  std::vector<std::string> packs;
  shm::Fingerprint fingerprint{};
  uint32_t experts_per_token = 1;  // of one layer
  SlotLayout layout = SlotLayout::kAsRead;
  uint64_t arena_bytes = 0;     // 0: all experts if they fit in 80 % of the free memory, else that
  std::string policy = "auto";  // policy::Make
  uint32_t queue_depth = 32;
  uint32_t slice_bytes = 512 * 1024;
  bool direct_io = true;
  bool sealed = true;
  std::string attach_path;
  // A value per expert, from an earlier run; empty: none. Read first, hottest first.
  std::vector<double> profile;
};

struct ExpertUses {
  uint32_t layer = 0;
  uint32_t index = 0;
  uint32_t count = 0;
};

struct DataPlaneStatus {
  uint64_t arena_bytes = 0;
  uint64_t slots = 0;  // that the arena was cut into
  uint64_t usable_slots = 0;
  uint64_t limit_bytes = 0;  // what slots may take
  uint64_t held_bytes = 0;   // of the system's memory, that the arena takes
  bool settled = true;       // as many slots have memory as may have
  uint64_t experts = 0;
  ResidencyCounts counts;
  uint64_t bytes_read = 0;
  uint64_t reading_ns = 0;  // time with reads in flight
  uint64_t read_errors = 0;
  uint32_t reads_in_flight = 0;
  uint32_t reads_waiting = 0;
  uint32_t clients = 0;
  bool direct_io = false;
  bool sealed = false;
  bool huge_pages = false;
  uint32_t copies = 1;  // files that an expert may be read from
  bool packed = false;
  const char* engine = "";
  std::string policy;
};

class DataPlane {
 public:
  // Makes the engine that reads `files` into `pieces` of the arena.
  using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<ReadEngine>>(
      const ModelFiles& files, std::span<const std::span<std::byte>> pieces, uint32_t depth)>;

  // Allocates the arena and listens on the attach socket. Errors are about memory, files or the
  // socket, and name them.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(
      DataPlaneOptions options, const EngineFactory& engine = SystemEngine);
  // io_uring, or threads where it is refused.
  static absl::StatusOr<std::unique_ptr<ReadEngine>> SystemEngine(
      const ModelFiles& files, std::span<const std::span<std::byte>> pieces, uint32_t depth);
  ~DataPlane();
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;

  // Serves until Stop(). One thread.
  void Run();

  // The following may be called from any thread while Run() runs.
  void Stop();
  DataPlaneStatus Status();
  // How much memory slots may take from now on, at most what was planned at the start (0: that).
  // Returns at once; the arena follows while it serves. ResourceExhausted, with the least that is
  // possible, if it is too little.
  absl::Status SetMemoryLimit(uint64_t bytes);
  // Uses of experts beside those the clients count themselves; unknown experts are skipped.
  // Returns the number of uses taken.
  uint64_t CountUses(std::span<const ExpertUses> uses, policy::Phase phase);
  // Reads them when the drive has nothing better to do.
  void LookAhead(std::span<const ExpertUses> experts);
  // The value of every expert, by number.
  std::vector<double> Profile();

  const DataPlaneOptions& options() const { return options_; }
  const SlotPlan& plan() const { return plan_; }
  const ExpertMap& map() const { return map_; }

 private:
  DataPlane(DataPlaneOptions options, const ExpertFiles& places, SlotPlan plan, Arena arena,
            ModelFiles files);
  absl::Status Start(const EngineFactory& engine);
  policy::Shape PolicyShape() const;
  void SetSlots(std::span<const uint32_t> slots, uint64_t bytes);
  std::vector<uint32_t> BackgroundOrder() const;

  // Runs `task` on the serving thread and waits for it.
  void OnThread(const std::function<void()>& task);
  void RunTasks();

  absl::Status Watch(int fd, uint64_t what);
  void Accept();
  void Greet(size_t place);
  void DropClient(uint32_t client, const absl::Status& why);
  void TakeRequests();
  void HandleEvent(uint64_t what);
  std::optional<uint32_t> NumberOf(const ExpertUses& expert) const;
  DataPlaneStatus StatusNow() const;

  const DataPlaneOptions options_;
  const Places places_;
  const SlotPlan plan_;
  const ExpertMap map_;
  Arena arena_;
  ModelFiles files_;
  UniqueFd table_fd_;
  MemoryMap table_memory_;
  shm::TableWriter table_;
  shm::SharedRegions regions_;
  std::unique_ptr<ReadEngine> engine_;
  std::unique_ptr<ReadQueue> reads_;
  std::string policy_name_;
  policy::Hotness hotness_;
  std::unique_ptr<policy::EvictionPolicy> policy_;
  std::unique_ptr<SlotMemory> memory_;
  std::unique_ptr<Residency> residency_;
  uint64_t limit_bytes_ = 0;

  UniqueFd epoll_;
  UniqueFd control_;  // eventfd: tasks_ or stopping_ changed
  UniqueFd listener_;
  std::array<std::optional<shm::AttachedClient>, shm::kMaxClients> clients_;
  std::array<UniqueFd, 8> pending_;  // connected, hello not yet received
  size_t next_pending_ = 0;
  std::vector<shm::Request> requests_;  // scratch

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;  // guarded by mutex_
  bool running_ = true;                       // guarded by mutex_; tasks are still taken
  std::atomic<bool> stopping_{false};
};

}  // namespace strata::expertstore
