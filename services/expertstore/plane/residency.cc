#include "services/expertstore/plane/residency.h"

#include <algorithm>
#include <bit>
#include <utility>

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

Residency::Residency(const SlotPlan& plan, const ExpertMap& map, std::byte* arena,
                     shm::TableWriter& table, ReadQueue& reads, policy::Hotness& hotness,
                     policy::EvictionPolicy& policy)
    : plan_(plan),
      map_(map),
      arena_(arena),
      table_(table),
      reads_(reads),
      hotness_(hotness),
      policy_(policy),
      states_(plan.experts),
      in_slot_(plan.slots, plan.experts),
      classes_(plan.classes.size()) {
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const shm::ClassRecord& record = plan.classes[c];
    // Taken from the back: the lowest slot goes first.
    for (uint32_t i = record.slots; i > 0; --i) {
      classes_[c].free_slots.push_back(record.first_slot + i - 1);
    }
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
      // Back to where experts stand that nobody has used yet.
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
    Evicted(expert);
  }
}

bool Residency::Advance() {
  CollectUses();
  FinishLoads();
  FreeDrained();
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
  const bool blocked = std::any_of(classes_.begin(), classes_.end(),
                                   [](const SizeClass& c) { return c.blocked > 0; });
  const bool first_time = blocked && !table_.starved();
  if (blocked != table_.starved()) table_.SetStarved(blocked);
  return first_time;
}

void Residency::FinishLoads() {
  outcomes_.clear();
  reads_.Reap(&outcomes_);
  for (const ReadQueue::Outcome& outcome : outcomes_) {
    const uint32_t expert = in_slot_[outcome.load];
    State& state = states_[expert];
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
    if (classes_[map_.place(expert).size_class].free_slots.empty()) continue;
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
  SetEntry(expert, EntryState::kLoading);
  map_.Extents(expert, state.slot, arena_, &extents_);
  reads_.Add(state.slot, priority, extents_);
  return true;
}

bool Residency::TakeSlot(uint32_t expert, Priority priority, uint32_t* slot) {
  const uint32_t class_index = map_.place(expert).size_class;
  SizeClass& size_class = classes_[class_index];
  const bool demand = IsDemand(priority) && !IsSwept(expert, priority);
  // Slots that come free while somebody waits are for him, not for guesses.
  if (!demand && table_.starved()) return false;
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
    // Marked first, pins looked at afterwards (FreeDrained): see arena_client.h.
    states_[victim].phase = Phase::kDraining;
    states_[victim].priority = Priority::kBackground;
    SetEntry(victim, EntryState::kEvicting);
    draining_.push_back(victim);
    ++size_class.draining;
    FreeDrained();
  }
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
