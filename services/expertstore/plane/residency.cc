#include "services/expertstore/plane/residency.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::expertstore {

using shm::EntryState;
using shm::Priority;
using shm::RequestOp;

namespace {

// How much more used than its victim a promoted expert must be: a swap that the next few tokens
// undo costs two reads.
constexpr double kPromotionGain = 1.5;
constexpr uint32_t kMostTokens = 1 << 16;
// Memory given back or taken in one step, so that requests never wait long for it: some ten
// milliseconds.
constexpr uint64_t kResizeStep = 32 << 20;

// Somebody waits: then even a pinned expert may be marked to go.
bool IsDemand(Priority priority) {
  return priority == Priority::kDecode || priority == Priority::kPrompt;
}

// What the policy is told about an expert that was read.
std::optional<policy::Phase> LoadedFor(Priority priority, bool promoted) {
  switch (priority) {
    case Priority::kDecode:
      return policy::Phase::kDecode;
    case Priority::kPrompt:
    case Priority::kLookAhead:
      return policy::Phase::kPrompt;
    default:
      return promoted ? std::optional(policy::Phase::kDecode) : std::nullopt;
  }
}

}  // namespace

Residency::Residency(const SlotPlan& plan, const ExpertMap& map, SlotMemory& memory,
                     shm::TableWriter& table, ReadQueue& reads, policy::Hotness& hotness,
                     policy::EvictionPolicy& policy)
    : plan_(plan),
      map_(map),
      memory_(memory),
      table_(table),
      reads_(reads),
      hotness_(hotness),
      policy_(policy),
      sources_(map.copies(), map.sources()),
      states_(plan.experts),
      in_slot_(plan.slots, plan.experts),
      classes_(plan.classes.size()) {
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const shm::ClassRecord& record = plan.classes[c];
    // Taken from the back: the lowest slot goes first.
    for (uint32_t i = record.slots; i > 0; --i) {
      classes_[c].free_slots.push_back(record.first_slot + i - 1);
    }
    classes_[c].slots = classes_[c].allowed = record.slots;
  }
  for (const shm::LayerRecord& layer : plan.layers) {
    if (layer.experts > 0) classes_[layer.size_class].layers.push_back(layer.first_expert);
  }
}

void Residency::AddClient(uint32_t client, shm::ClientPeer* peer) { clients_[client].peer = peer; }

void Residency::RemoveClient(uint32_t client) {
  Client& gone = clients_[client];
  CollectUses();
  counts_.hits += gone.peer->hits();
  counts_.misses += gone.peer->misses();
  gone = Client();
  const uint64_t bit = 1ull << client;
  for (uint32_t expert = 0; expert < states_.size(); ++expert) {
    State& state = states_[expert];
    if (((state.wanted | state.ahead) & bit) == 0) continue;
    state.wanted &= ~bit;
    state.ahead &= ~bit;
    Reconsider(expert);
  }
}

absl::Status Residency::Handle(uint32_t client, const shm::Request& request) {
  switch (request.op) {
    case RequestOp::kWant:
      if (clients_[client].wants >= shm::kMaxOutstanding) {
        return absl::InvalidArgumentError(
            absl::StrCat("more than ", shm::kMaxOutstanding, " experts wanted at a time"));
      }
      Want(client, request.expert, request.priority);
      break;
    case RequestOp::kDone:
      Done(client, request.expert);
      break;
    case RequestOp::kLookAhead:
      if ((states_[request.expert].ahead & 1ull << client) == 0) {
        if (clients_[client].ahead.size() >= shm::kMaxOutstanding) CancelAhead(client);
        clients_[client].ahead.push_back(request.expert);
        AskAhead(1ull << client, request.expert,
                 request.priority == Priority::kPrompt ? Priority::kPrompt : Priority::kLookAhead);
      }
      break;
    case RequestOp::kCancelLookAhead:
      CancelAhead(client);
      break;
    case RequestOp::kPromote:
      Promote(request.expert);
      break;
    case RequestOp::kElsewhere:
      // Back to where experts stand that nobody has used yet; uses that were noted before must not
      // be counted after it.
      CollectUses();
      if (states_[request.expert].phase == Phase::kResident) {
        policy_.Erase(request.expert);
        policy_.Insert(request.expert, std::nullopt);
      }
      break;
  }
  return absl::OkStatus();
}

void Residency::LookAhead(uint32_t expert) { AskAhead(kStoreBit, expert, Priority::kLookAhead); }

void Residency::Promote(uint32_t expert) {
  State& state = states_[expert];
  if (state.phase != Phase::kAbsent) return;
  state.ahead |= kStoreBit;
  state.promoted = true;
  Enqueue(expert, Priority::kBackground);
}

void Residency::Want(uint32_t client, uint32_t expert, Priority priority) {
  State& state = states_[expert];
  const uint64_t bit = 1ull << client;
  if ((state.wanted & bit) == 0) ++clients_[client].wants;
  state.wanted |= bit;
  switch (state.phase) {
    case Phase::kAbsent:
      Enqueue(expert, priority);
      break;
    case Phase::kQueued:
      if (priority < state.priority) Enqueue(expert, priority);
      break;
    case Phase::kLoading:
      if (priority < state.priority) {
        state.priority = priority;
        reads_.Raise(state.slot, priority);
      }
      break;
    case Phase::kResident:  // it came between the client's look and our reading of its request
      clients_[client].peer->Wake();
      break;
    case Phase::kDraining:
      // Somebody waits for this slot already; taking it back could make him wait for ever. It is
      // read again when its turn comes.
      state.priority = std::min(priority, state.priority);
      break;
  }
}

void Residency::Done(uint32_t client, uint32_t expert) {
  State& state = states_[expert];
  const uint64_t bit = 1ull << client;
  if ((state.wanted & bit) == 0) return;
  state.wanted &= ~bit;
  --clients_[client].wants;
  Reconsider(expert);
}

void Residency::AskAhead(uint64_t bit, uint32_t expert, Priority priority) {
  State& state = states_[expert];
  if (state.phase != Phase::kAbsent && state.phase != Phase::kQueued) return;
  state.ahead |= bit;
  if (state.phase == Phase::kAbsent) Enqueue(expert, priority);
}

void Residency::CancelAhead(uint32_t client) {
  const uint64_t bit = 1ull << client;
  for (const uint32_t expert : std::exchange(clients_[client].ahead, {})) {
    if ((states_[expert].ahead & bit) == 0) continue;
    states_[expert].ahead &= ~bit;
    Reconsider(expert);
  }
}

void Residency::Enqueue(uint32_t expert, Priority priority) {
  std::deque<uint32_t>& queue = queues_[static_cast<size_t>(priority)];
  // Stale entries are skipped when their turn comes; a client that asks and cancels in a loop must
  // not make them pile up.
  if (queue.size() > 2 * states_.size()) {
    std::erase_if(queue, [&](uint32_t e) {
      return states_[e].phase != Phase::kQueued || states_[e].priority != priority;
    });
    std::sort(queue.begin(), queue.end());
    queue.erase(std::unique(queue.begin(), queue.end()), queue.end());
  }
  states_[expert].phase = Phase::kQueued;
  states_[expert].priority = priority;
  queue.push_back(expert);
}

void Residency::Reconsider(uint32_t expert) {
  State& state = states_[expert];
  if (state.wanted != 0 || state.ahead != 0) return;
  if (state.phase == Phase::kQueued) {
    state.phase = Phase::kAbsent;
  } else if (state.phase == Phase::kLoading && background_next_ == background_.size() &&
             reads_.Cancel(state.slot)) {  // (the background load would come to it anyway)
    sources_.Ended(state.attempt);
    Evicted(expert);
  }
}

void Residency::SetSlots(std::span<const uint32_t> slots) {
  for (size_t c = 0; c < classes_.size(); ++c) {
    classes_[c].allowed = std::clamp(slots[c], 1u, plan_.classes[c].slots);
  }
}

bool Residency::settled() const {
  return std::all_of(classes_.begin(), classes_.end(),
                     [](const SizeClass& c) { return c.slots == c.allowed; });
}

uint32_t Residency::usable_slots() const {
  uint32_t slots = 0;
  for (const SizeClass& size_class : classes_) slots += size_class.slots;
  return slots;
}

bool Residency::Resize() {
  uint64_t budget = kResizeStep;
  bool more = false;
  for (size_t c = 0; c < classes_.size(); ++c) {
    SizeClass& size_class = classes_[c];
    if (size_class.slots == size_class.allowed) continue;
    more |= size_class.slots > size_class.allowed
                ? Shrink(size_class, plan_.classes[c].slot_bytes, &budget)
                : Grow(size_class, plan_.classes[c].slot_bytes, &budget);
    table_.SetUsableSlots(usable_slots());
  }
  return more;
}

bool Residency::Shrink(SizeClass& size_class, uint64_t slot_bytes, uint64_t* budget) {
  const auto release_free = [&] {
    while (size_class.slots > size_class.allowed && !size_class.free_slots.empty() && *budget > 0) {
      const uint32_t slot = size_class.free_slots.back();
      size_class.free_slots.pop_back();
      memory_.Release(slot);
      size_class.bare_slots.push_back(slot);
      --size_class.slots;
      *budget -= std::min(*budget, slot_bytes);
    }
  };
  release_free();
  // Layer by layer in turn, or a policy with lists by layer would empty one after the other.
  while (size_class.slots - size_class.allowed > size_class.draining && *budget > 0) {
    const uint32_t in_layer = size_class.layers[size_class.next_layer++ % size_class.layers.size()];
    const std::optional<uint32_t> victim = FindVictim(in_layer, Priority::kDecode);
    if (!victim) break;  // all are being read or waited for; they come here when they have arrived
    StartDraining(*victim);
    FreeDrained();
    release_free();
  }
  return size_class.slots > size_class.allowed && *budget == 0;
}

bool Residency::Grow(SizeClass& size_class, uint64_t slot_bytes, uint64_t* budget) {
  while (*budget > 0 && size_class.slots < size_class.allowed) {
    const uint32_t slot = size_class.bare_slots.back();
    if (!memory_.Take(slot)) {
      LogWarning("the system refuses memory for the expert arena; it stays at ", usable_slots(),
                 " slots");
      size_class.allowed = size_class.slots;
      return false;
    }
    size_class.bare_slots.pop_back();
    size_class.free_slots.push_back(slot);
    ++size_class.slots;
    *budget -= std::min(*budget, slot_bytes);
  }
  return size_class.slots < size_class.allowed;
}

bool Residency::Advance() {
  CollectUses();
  FinishLoads();
  FreeDrained();
  const bool resizing = Resize();
  for (SizeClass& size_class : classes_) {
    size_class.blocked = 0;
    size_class.exhausted = false;
  }
  StartQueued(Priority::kDecode);
  StartQueued(Priority::kLookAhead);
  StartQueued(Priority::kPrompt);
  StartQueued(Priority::kBackground);
  StartBackground();
  reads_.Pump();
  const bool waiting = std::any_of(classes_.begin(), classes_.end(), [](const SizeClass& c) {
    return c.blocked > 0 || c.slots > c.allowed;
  });
  const bool first_time = waiting && !table_.starved();
  if (waiting != table_.starved()) table_.SetStarved(waiting);
  return first_time || resizing;
}

void Residency::FinishLoads() {
  outcomes_.clear();
  reads_.Reap(&outcomes_);
  for (ReadQueue::Outcome& outcome : outcomes_) {
    const uint32_t expert = in_slot_[outcome.load];
    State& state = states_[expert];
    sources_.Ended(state.attempt);
    if (outcome.status.ok()) {
      map_.Arrange(expert, state.slot, state.attempt.source, memory_.arena(), &arranging_);
    }
    const bool wrong_bytes =
        outcome.status.ok() && !map_.ChecksumFits(expert, state.slot, memory_.arena());
    if (wrong_bytes) {
      ++counts_.bad_checksums;
      const ExpertMap::Place& place = map_.place(expert);
      outcome.status = absl::DataLossError(
          absl::StrCat("expert ", place.index, " of layer ", place.layer,
                       " does not have the checksum that the pack was written with"));
    }
    if (!outcome.status.ok() && ReadElsewhere(expert, outcome.status, wrong_bytes)) continue;
    const uint64_t waiting = state.wanted;
    // For a prompt's next layer: it keeps its bits, and with them its place, until it is cancelled.
    const bool swept = IsSwept(expert, state.priority);
    if (!swept || !outcome.status.ok()) state.ahead = 0;
    if (outcome.status.ok()) {
      state.phase = Phase::kResident;
      SetEntry(expert, EntryState::kResident);
      policy_.Insert(expert, swept ? std::nullopt : LoadedFor(state.priority, state.promoted));
      ++counts_.resident;
    } else {
      ++counts_.failed_loads;
      state.wanted = 0;
      Evicted(expert);
    }
    for (uint64_t left = waiting; left != 0; left &= left - 1) {
      Client& client = clients_[std::countr_zero(left)];
      if (!outcome.status.ok()) {
        --client.wants;
        // A full ring: the client stopped reading; its next request will find out.
        client.peer->PushFailure(expert, outcome.status).IgnoreError();
      }
      client.peer->Wake();
    }
  }
}

void Residency::FreeDrained() {
  std::erase_if(draining_, [&](uint32_t expert) {
    if (Pinned(states_[expert].slot)) return false;
    --classes_[map_.place(expert).size_class].draining;
    ++counts_.evictions;
    --counts_.resident;
    policy_.Erase(expert);
    const Priority priority = states_[expert].priority;
    Evicted(expert);
    if (states_[expert].wanted != 0) Enqueue(expert, priority);
    return true;
  });
}

void Residency::Evicted(uint32_t expert) {
  State& state = states_[expert];
  SetEntry(expert, EntryState::kAbsent);
  classes_[map_.place(expert).size_class].free_slots.push_back(state.slot);
  in_slot_[state.slot] = plan_.experts;
  state.phase = Phase::kAbsent;
  state.priority = Priority::kBackground;
  state.promoted = false;
}

void Residency::StartQueued(Priority priority) {
  std::deque<uint32_t>& queue = queues_[static_cast<size_t>(priority)];
  std::vector<uint32_t> blocked;
  bool sweep_waits = false;
  while (!queue.empty() && reads_.WantsMore(priority)) {
    const uint32_t expert = queue.front();
    queue.pop_front();
    State& state = states_[expert];
    if (state.phase != Phase::kQueued || state.priority != priority) continue;
    const bool swept = IsSwept(expert, priority);
    if (!(swept && sweep_waits) && StartLoad(expert, priority)) continue;
    sweep_waits |= swept;       // slots come free as the layer before it is computed
    if (!IsDemand(priority)) {  // a guess is not worth waiting for
      state.phase = Phase::kAbsent;
      state.ahead = 0;
      state.promoted = false;
      continue;
    }
    blocked.push_back(expert);
  }
  queue.insert(queue.begin(), blocked.begin(), blocked.end());
}

void Residency::StartBackground() {
  while (background_next_ < background_.size() && reads_.WantsMore(Priority::kBackground)) {
    const uint32_t expert = background_[background_next_++];
    if (states_[expert].phase != Phase::kAbsent) continue;
    const SizeClass& size_class = classes_[map_.place(expert).size_class];
    if (size_class.free_slots.empty()) {
      if (size_class.slots >= size_class.allowed) continue;
      --background_next_;  // a slot is about to get its memory
      break;
    }
    StartLoad(expert, Priority::kBackground);
  }
}

bool Residency::StartLoad(uint32_t expert, Priority priority) {
  const uint32_t class_index = map_.place(expert).size_class;
  State& state = states_[expert];
  if (!TakeSlot(expert, priority, &state.slot)) {
    if (IsDemand(priority) && !IsSwept(expert, priority)) ++classes_[class_index].blocked;
    return false;
  }
  state.phase = Phase::kLoading;
  state.priority = priority;
  in_slot_[state.slot] = expert;
  state.attempt = sources_.Choose(expert);
  SetEntry(expert, EntryState::kLoading);
  Read(expert);
  return true;
}

void Residency::Read(uint32_t expert) {
  const State& state = states_[expert];
  sources_.Started(state.attempt);
  map_.Extents(expert, state.slot, state.attempt.source, memory_.arena(), &extents_);
  reads_.Add(state.slot, state.priority, extents_);
}

bool Residency::ReadElsewhere(uint32_t expert, const absl::Status& why, bool wrong_bytes) {
  State& state = states_[expert];
  const std::optional<SourceChooser::Attempt> next =
      sources_.AfterFailure(state.attempt, wrong_bytes);
  if (!next) return false;
  LogWarning(why.message(), "; reading it ",
             next->source == state.attempt.source ? "again"
             : next->source < map_.copies()       ? "from another copy"
                                                  : "from the model's own file");
  state.attempt = *next;
  ++counts_.second_sources;
  Read(expert);
  return true;
}

bool Residency::TakeSlot(uint32_t expert, Priority priority, uint32_t* slot) {
  const uint32_t class_index = map_.place(expert).size_class;
  SizeClass& size_class = classes_[class_index];
  const bool demand = IsDemand(priority) && !IsSwept(expert, priority);
  // Slots that come free while somebody waits are for him, not for guesses.
  if (!demand && (table_.starved() || size_class.slots > size_class.allowed)) return false;
  for (;;) {
    if (!size_class.free_slots.empty()) {
      *slot = size_class.free_slots.back();
      size_class.free_slots.pop_back();
      return true;
    }
    // As many slots are coming free already as demands wait for one.
    if (size_class.draining > size_class.blocked || size_class.exhausted) return false;
    const std::optional<uint32_t> found = FindVictim(expert, priority);
    if (!found) {
      size_class.exhausted = demand;
      return false;
    }
    const uint32_t victim = *found;
    if (priority == Priority::kBackground &&
        hotness_.Value(expert) < kPromotionGain * hotness_.Value(victim)) {
      return false;
    }
    StartDraining(victim);
    FreeDrained();
  }
}

// Marked first, pins looked at afterwards (FreeDrained): see arena_client.h.
void Residency::StartDraining(uint32_t expert) {
  states_[expert].phase = Phase::kDraining;
  states_[expert].priority = Priority::kBackground;
  SetEntry(expert, EntryState::kEvicting);
  draining_.push_back(expert);
  ++classes_[map_.place(expert).size_class].draining;
}

std::optional<uint32_t> Residency::FindVictim(uint32_t incoming, Priority priority) {
  if (IsSwept(incoming, priority)) {
    return policy_.Victim(incoming, policy::Phase::kPromptAhead, [this](uint32_t expert) {
      return Evictable(expert) && states_[expert].ahead == 0 && !Pinned(states_[expert].slot);
    });
  }
  const policy::Phase phase =
      priority == Priority::kPrompt ? policy::Phase::kPrompt : policy::Phase::kDecode;
  const auto unpinned = policy_.Victim(incoming, phase, [this](uint32_t expert) {
    return Evictable(expert) && !Pinned(states_[expert].slot);
  });
  // Of pinned ones only when somebody waits, and one at a time: marking them turns the next hits on
  // them into misses.
  if (unpinned || !IsDemand(priority)) return unpinned;
  return policy_.Victim(incoming, phase, [this](uint32_t expert) { return Evictable(expert); });
}

void Residency::SetBackgroundOrder(std::vector<uint32_t> order) {
  background_ = std::move(order);
  background_next_ = 0;
}

void Residency::CollectUses() {
  for (Client& client : clients_) {
    if (client.peer == nullptr) continue;
    client.peer->TakeUses([this](const shm::ExpertUse& use) {
      // A client cannot claim more in one step than a step may have.
      CountUse(use.expert, std::min(use.tokens, kMostTokens),
               use.prompt ? policy::Phase::kPrompt : policy::Phase::kDecode);
    });
  }
}

void Residency::CountUse(uint32_t expert, uint32_t tokens, policy::Phase phase) {
  hotness_.Use(expert, tokens, phase);
  policy_.Use(expert, tokens, phase);
}

bool Residency::Pinned(uint32_t slot) const {
  return std::any_of(clients_.begin(), clients_.end(), [slot](const Client& client) {
    return client.peer != nullptr && client.peer->Pins(slot);
  });
}

void Residency::SetEntry(uint32_t expert, EntryState state) {
  shm::Entry entry = table_.entry(expert);
  entry.state = state;
  entry.slot = states_[expert].slot;
  if (state == EntryState::kLoading) ++entry.generation;
  table_.SetEntry(expert, entry);
}

ResidencyCounts Residency::counts() const {
  ResidencyCounts counts = counts_;
  for (const Client& client : clients_) {
    if (client.peer == nullptr) continue;
    counts.hits += client.peer->hits();
    counts.misses += client.peer->misses();
  }
  counts.background_left = background_.size() - background_next_;
  return counts;
}

}  // namespace strata::expertstore
