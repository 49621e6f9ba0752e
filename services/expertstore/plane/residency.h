// The store's mind: which expert is where, who wants what, what is read next, what must go.
//
// One expert's life:
//
//            want, look-ahead           slot found              read ended
//   absent ------------------> queued -------------> loading -------------> resident
//     ^  ^                       |                      |                       |
//     |  +-----------------------+                      | failed everywhere     | chosen as victim
//     |        nobody wants it any more                 v                       v
//     +----------------------------------------------- absent <------------ draining
//                                                             last pin gone
//
// The table shows queued as absent and draining as evicting. An expert that some client wants is
// held: from its arrival until that client has pinned it (kDone) it is no victim. Clients hold
// nothing while they wait (services/compute/experts/expert_source.h), so every slot comes free in
// the end and no request waits for ever.
//
// The store may have to do with fewer slots (SetSlots): then the least valuable experts go, and the
// memory of their slots, once drained, is given back to the system.
//
// A read that fails, or brings bytes of another checksum than the pack's, is repeated from the next
// source that has the expert (SourceChooser); only when none is left do those who want it get an
// error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/policy/eviction_policy.h"
#include "common/policy/hotness.h"
#include "common/shm/client_peer.h"
#include "common/shm/table.h"
#include "services/expertstore/arena/slot_memory.h"
#include "services/expertstore/arena/slot_plan.h"
#include "services/expertstore/io/read_queue.h"
#include "services/expertstore/io/source_chooser.h"

#include "absl/status/status.h"

namespace strata::expertstore {

struct ResidencyCounts {
  uint64_t resident = 0;
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t evictions = 0;
  uint64_t failed_loads = 0;
  uint64_t second_sources = 0;   // loads repeated from another source
  uint64_t bad_checksums = 0;    // of reads that brought other bytes than were packed
  uint64_t background_left = 0;  // experts that the background load still means to read
};

// One thread. References must outlive it.
class Residency {
 public:
  Residency(const SlotPlan& plan, const ExpertMap& map, SlotMemory& memory, shm::TableWriter& table,
            ReadQueue& reads, policy::Hotness& hotness, policy::EvictionPolicy& policy);

  // `client` < kMaxClients, free; the peer lives until RemoveClient.
  void AddClient(uint32_t client, shm::ClientPeer* peer);
  void RemoveClient(uint32_t client);

  // An error means that the client breaks the protocol and must be removed.
  absl::Status Handle(uint32_t client, const shm::Request& request);
  // The store's own wish, as by a client's look-ahead.
  void LookAhead(uint32_t expert);
  // Reads it in the background, in place of experts that are clearly less used.
  void Promote(uint32_t expert);

  // What to read whenever nobody asks for anything, while there are free slots.
  void SetBackgroundOrder(std::vector<uint32_t> order);

  // How many slots of each size class may have memory; at least one of each, at most as planned.
  void SetSlots(std::span<const uint32_t> slots);
  // Whether as many slots have memory as may have.
  bool settled() const;
  uint32_t usable_slots() const;

  // Takes finished reads, frees drained slots, starts reads. To be called after anything happened.
  // True: call again before sleeping, after taking the clients' requests: a slot is waited for, for
  // the first time (see StoreStarved in arena_client.h), or slots gain or lose their memory.
  bool Advance();
  // A demand waits for a slot. Wake up now and then even if no client rings.
  bool starved() const { return table_.starved(); }

  // Tells hotness and policy what the clients used since the last call.
  void CollectUses();
  // Uses that no client notes itself.
  void CountUse(uint32_t expert, uint32_t tokens, policy::Phase phase);

  ResidencyCounts counts() const;

 private:
  enum class Phase : uint8_t { kAbsent, kQueued, kLoading, kResident, kDraining };
  struct State {
    uint64_t wanted = 0;  // bit per client that waits for it or has yet to pin it
    uint64_t ahead = 0;   // bit per client (kStoreBit: the store) that asked for it ahead
    Phase phase = Phase::kAbsent;
    shm::Priority priority = shm::Priority::kBackground;  // while queued or loading
    bool promoted = false;                                // to be kept as if it had been used
    uint32_t slot = 0;                                    // from loading on
    SourceChooser::Attempt attempt;                       // while loading
  };
  struct Client {
    shm::ClientPeer* peer = nullptr;
    uint32_t wants = 0;           // bits set in State::wanted
    std::vector<uint32_t> ahead;  // experts with our bit in State::ahead, and stale ones
  };
  struct SizeClass {
    std::vector<uint32_t> free_slots;
    std::vector<uint32_t> bare_slots;  // without memory
    uint32_t slots = 0;                // with memory
    uint32_t allowed = 0;              // to have memory
    std::vector<uint32_t> layers;      // an expert of each layer of the class
    uint32_t next_layer = 0;           // to lose an expert
    uint32_t draining = 0;
    uint32_t blocked = 0;    // demands that found no slot in this round
    bool exhausted = false;  // no victim was left in this round
  };
  static constexpr uint64_t kStoreBit = 1ull << shm::kMaxClients;

  void Want(uint32_t client, uint32_t expert, shm::Priority priority);
  void Done(uint32_t client, uint32_t expert);
  void AskAhead(uint64_t bit, uint32_t expert, shm::Priority priority);
  void CancelAhead(uint32_t client);
  void Enqueue(uint32_t expert, shm::Priority priority);
  // After a wish went away: stops what is now wanted by nobody.
  void Reconsider(uint32_t expert);

  void FinishLoads();
  void FreeDrained();
  // Towards the allowed number of slots, a limited step. True: there is more to do at once.
  bool Resize();
  bool Shrink(SizeClass& size_class, uint64_t slot_bytes, uint64_t* budget);
  bool Grow(SizeClass& size_class, uint64_t slot_bytes, uint64_t* budget);
  void StartDraining(uint32_t expert);
  void StartQueued(shm::Priority priority);
  void StartBackground();
  bool StartLoad(uint32_t expert, shm::Priority priority);
  void Read(uint32_t expert);
  // After a failed read; false when every source has been tried.
  bool ReadElsewhere(uint32_t expert, const absl::Status& why, bool wrong_bytes);
  // A free slot for `expert`, by evicting if need be.
  bool TakeSlot(uint32_t expert, shm::Priority priority, uint32_t* slot);
  std::optional<uint32_t> FindVictim(uint32_t incoming, shm::Priority priority);
  void Evicted(uint32_t expert);
  bool Evictable(uint32_t expert) const {
    return states_[expert].phase == Phase::kResident && states_[expert].wanted == 0;
  }
  // Asked for ahead by a prompt that computes the layer before, and by nobody else.
  bool IsSwept(uint32_t expert, shm::Priority priority) const {
    return priority == shm::Priority::kPrompt && states_[expert].wanted == 0;
  }
  bool Pinned(uint32_t slot) const;
  void SetEntry(uint32_t expert, shm::EntryState state);

  const SlotPlan& plan_;
  const ExpertMap& map_;
  SlotMemory& memory_;
  shm::TableWriter& table_;
  ReadQueue& reads_;
  policy::Hotness& hotness_;
  policy::EvictionPolicy& policy_;
  SourceChooser sources_;

  std::vector<State> states_;      // by expert
  std::vector<uint32_t> in_slot_;  // expert by slot, while the slot is taken
  std::vector<SizeClass> classes_;
  std::array<Client, shm::kMaxClients> clients_;
  std::array<std::deque<uint32_t>, shm::kPriorities> queues_;  // queued experts, and stale ones
  std::vector<uint32_t> draining_;
  std::vector<uint32_t> background_;
  size_t background_next_ = 0;
  std::vector<Extent> extents_;               // scratch
  std::vector<ReadQueue::Outcome> outcomes_;  // scratch
  std::vector<std::byte> arranging_;          // scratch
  ResidencyCounts counts_;
};

}  // namespace strata::expertstore
