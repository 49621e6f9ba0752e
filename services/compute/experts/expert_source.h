// Where the step loop gets the weights of routed experts from.
//
//   source.Begin(experts_of_this_layer, ExpertPriority::kDecode);
//   for (;;) {
//     STRATA_ASSIGN_OR_RETURN(const auto ready, source.Next());   // End() first on error
//     if (ready.empty()) break;
//     ... compute with `ready` ...
//   }
//   source.End();
//
// A batch hands its experts out in groups: first all that are in memory already, then the others as
// they arrive from the drive, so computing overlaps reading.
//
// Lifetime of a group: its addresses are valid until the next Next() or End(), whichever comes
// first. Next() gives the group back before it waits; so whoever waits holds nothing, and therefore
// an arena with a single free slot still serves any number of clients with batches of any size: a
// slot is only ever held by a client that computes, which ends by itself. A caller whose device
// reads the weights asynchronously must synchronise before the next Next().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/quant/weight_layout.h"
#include "common/shm/protocol.h"

#include "absl/status/statusor.h"

namespace strata::compute {

using ExpertPriority = shm::Priority;

struct ExpertId {
  uint16_t layer = 0;  // the model's layer number
  uint16_t index = 0;
  bool operator==(const ExpertId&) const = default;
};

// Host addresses of an expert's tensors, in the order of ExpertGeometry: gate, up, down; or
// gate_up, down, and the layout of their rows; addresses are aligned as the file's tensors are.
struct ExpertParts {
  const std::byte* part[shm::kMaxParts] = {};
  quant::WeightLayout layout[shm::kMaxParts] = {};
};

struct ReadyExpert {
  uint32_t position = 0;  // in the batch given to Begin
  ExpertId id;
  ExpertParts parts;
};

// How often the router chose an expert in one step.
struct ExpertUse {
  ExpertId id;
  uint32_t tokens = 0;
};

struct ExpertCounters {
  uint64_t hits = 0;          // experts that were there when a batch began
  uint64_t misses = 0;        // experts that had to be waited for
  uint64_t wait_ns = 0;       // time spent waiting in Next()
  uint64_t looked_ahead = 0;  // experts asked for by LookAhead
  uint64_t device_hits = 0;   // of the hits, in device memory
  uint64_t uploads = 0;       // into device memory
  uint64_t connections = 0;   // times a store was attached to; 0 without a store
};

// One thread at a time.
class ExpertSource {
 public:
  static constexpr uint32_t kMaxBatch = shm::kMaxOutstanding;

  virtual ~ExpertSource() = default;

  // Starts a batch of at most kMaxBatch experts, each at most once and all of the model: takes hold
  // of those in memory and asks for the others at `priority`. The previous batch must have ended.
  virtual void Begin(std::span<const ExpertId> experts, ExpertPriority priority) = 0;

  // The next group, hits first; waits until there is one. Empty: the batch is complete. Errors end
  // the batch's reading (call End()): a read that failed for good names file and offset;
  // Unavailable means that the store is gone: the batch may be begun again after WaitUntilReady().
  virtual absl::StatusOr<std::span<const ReadyExpert>> Next() = 0;

  // Gives everything back and cancels what was not waited for.
  virtual void End() = 0;

  // Tells what the router chose, whether it was then used or replaced (PromptRouting): from this
  // the store learns what to keep. A prompt's choices count 1/32 of decoding's.
  virtual void CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) = 0;

  // in_memory[e] = 1 if expert e of `layer` is in memory at this moment, else 0. Nothing is held:
  // what another client pushes out before Begin() is read again.
  virtual void FindResident(uint16_t layer, std::span<uint8_t> in_memory) const = 0;
  // Whether memory has a place for every expert of the model.
  virtual bool HoldsAll() const = 0;

  // Asks for experts to be read when the drive is idle and kept if they are worth more, by use,
  // than what they replace. Not cancelled by LookAhead.
  virtual void Promote(std::span<const ExpertId> experts) = 0;

  // Asks for experts that a later batch will probably want. For decoding (kDecode): when the drive
  // has nothing better to do. For a prompt (kPrompt): behind what the prompt waits for now, in
  // places that decoding does not need. Replaces the previous call's wishes as far as their reading
  // has not begun.
  virtual void LookAhead(std::span<const ExpertId> experts, ExpertPriority priority) = 0;

  // The caller holds copies of these: they are the first to go when room is needed.
  virtual void HeldElsewhere(std::span<const ExpertId> experts) = 0;

  // Blocks until a store is attached, at most `timeout_ms`. Between batches only.
  virtual absl::Status WaitUntilReady(int timeout_ms) = 0;

  virtual ExpertCounters counters() const = 0;
};

}  // namespace strata::compute
