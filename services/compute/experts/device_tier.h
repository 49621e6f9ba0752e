// A second level: slots in device memory above the experts in RAM, by the same interface.
//
//   Begin   experts in a slot are handed out first, with addresses in device memory; the others
//   come
//           from the source below, as they did without a device
//   End     of those others a few are chosen to be uploaded, each into a free slot or that of the
//           least recently used expert: 2 of a layer and 64 of a step unless configured otherwise,
//           so that uploads never crowd out what the bus is needed for
//
// Only generated tokens upload; a prompt, which passes over everything, uses what is there.
//
// Who may touch a slot. The table (which expert is in which slot) belongs to the step thread. It
// takes the victim out of the table, then hands the slot to the copy thread; it puts the newcomer
// in when the copy thread has handed the slot back. A slot that the running step has used is no
// victim before the next step begins: a device may compute a whole step behind the host.
//
// Exclusive: RAM need not hold what the device holds. The source below is told what was uploaded
// (the first to go there), and no longer of its uses. An expert that leaves the device is read
// again, from the drive if RAM has dropped it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/gguf/expert_geometry.h"
#include "common/policy/eviction_policy.h"
#include "common/policy/hotness.h"
#include "common/quant/tensor_type.h"
#include "services/compute/experts/expert_device.h"
#include "services/compute/experts/expert_source.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class DeviceTier : public ExpertSource {
 public:
  struct Options {
    uint32_t uploads_per_layer = 2;
    uint32_t uploads_per_step = 64;
  };
  // `feeder`: another client of the memory below, for the copy thread alone. InvalidArgument if the
  // device's memory does not hold one expert.
  static absl::StatusOr<std::unique_ptr<DeviceTier>> Create(std::unique_ptr<ExpertSource> below,
                                                            std::unique_ptr<ExpertSource> feeder,
                                                            std::unique_ptr<ExpertDevice> device,
                                                            const gguf::ExpertGeometry& geometry,
                                                            const Options& options);
  ~DeviceTier() override;
  DeviceTier(const DeviceTier&) = delete;
  DeviceTier& operator=(const DeviceTier&) = delete;

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }

  void Begin(std::span<const ExpertId> experts, ExpertPriority priority) override;
  absl::StatusOr<std::span<const ReadyExpert>> Next() override;
  void End() override;
  void CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) override;
  void FindResident(uint16_t layer, std::span<uint8_t> in_memory) const override;
  bool HoldsAll() const override { return below_->HoldsAll(); }
  void Promote(std::span<const ExpertId> experts) override { below_->Promote(NotHere(experts)); }
  void LookAhead(std::span<const ExpertId> experts, ExpertPriority priority) override {
    below_->LookAhead(NotHere(experts), priority);
  }
  void HeldElsewhere(std::span<const ExpertId> experts) override { below_->HeldElsewhere(experts); }
  absl::Status WaitUntilReady(int timeout_ms) override {
    return below_->WaitUntilReady(timeout_ms);
  }
  ExpertCounters counters() const override;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Layer {
    uint32_t first_expert = 0;
    uint32_t experts = 0;
    uint32_t parts = 0;
    size_t offset[shm::kMaxParts] = {};  // in a slot
    size_t bytes[shm::kMaxParts] = {};
    TensorType type[shm::kMaxParts] = {};
    size_t row_bytes[shm::kMaxParts] = {};
  };
  struct Place {
    uint32_t slot = kNone;   // where it can be used
    bool uploading = false;  // into a slot that the copy thread has
  };
  struct Slot {
    uint32_t expert = kNone;
    uint64_t used_in = 0;  // the last step that computed with it
  };
  struct Upload {
    ExpertId id;
    uint32_t slot = 0;
    bool done = false;  // the bytes are there; otherwise RAM had dropped the expert
  };

  DeviceTier(std::unique_ptr<ExpertSource> below, std::unique_ptr<ExpertSource> feeder,
             std::unique_ptr<ExpertDevice> device, const Options& options);
  uint32_t NumberOf(ExpertId id) const { return layers_[id.layer].first_expert + id.index; }
  std::byte* At(uint32_t slot) const { return base_ + size_t{slot} * slot_bytes_; }
  std::span<const ExpertId> NotHere(std::span<const ExpertId> experts);
  void TakeFinished();
  void StartUploads();
  uint32_t FreeSlot(uint32_t incoming);
  void CopyLoop();
  bool CopyIn(const Upload& upload);

  const std::unique_ptr<ExpertSource> below_;
  const std::unique_ptr<ExpertSource> feeder_;
  const std::unique_ptr<ExpertDevice> device_;
  const Options options_;
  std::byte* base_ = nullptr;
  size_t slot_bytes_ = 0;
  std::vector<Layer> layers_;  // by layer number

  // The step thread's.
  std::vector<Place> places_;  // by expert
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::unique_ptr<policy::Hotness> hotness_;
  std::unique_ptr<policy::EvictionPolicy> policy_;
  uint64_t step_ = 1;
  uint32_t last_layer_ = 0;
  uint32_t step_uploads_ = 0;
  uint32_t uploading_ = 0;
  bool decoding_ = false;
  bool handed_out_ = false;
  bool below_began_ = false;
  bool failed_ = false;
  std::vector<ReadyExpert> here_;
  std::vector<ExpertId> there_;  // of the batch, from below
  std::vector<uint32_t> there_positions_;
  std::vector<ReadyExpert> group_;
  std::vector<ExpertId> not_here_;
  std::vector<ExpertUse> uses_;
  uint64_t hits_ = 0, uploads_ = 0;

  std::atomic<bool> some_finished_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Upload> queue_;      // guarded by mutex_
  std::vector<Upload> finished_;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
  std::vector<std::byte> plain_;  // the copy thread's
  std::thread copier_;
};

}  // namespace strata::compute
