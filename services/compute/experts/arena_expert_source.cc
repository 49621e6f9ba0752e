#include "services/compute/experts/arena_expert_source.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::compute {
namespace {

// Only a safety net: the store wakes us, and the watcher does when the store dies.
constexpr int kWaitMs = 100;
constexpr auto kFirstRetry = std::chrono::milliseconds(10);
constexpr auto kLastRetry = std::chrono::milliseconds(500);

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

absl::Status Gone() {
  return absl::UnavailableError("the expert store is gone; waiting for it to come back");
}

}  // namespace

ArenaExpertSource::ArenaExpertSource(Options options)
    : options_(std::move(options)), connect_status_(absl::UnavailableError("not yet attached")) {
  wanted_.reserve(kMaxBatch);
  ready_.reserve(kMaxBatch);
  ready_slots_.reserve(kMaxBatch);
  handed_out_.reserve(kMaxBatch);
  handed_slots_.reserve(kMaxBatch);
  // Wants go out after all dones, so never more dones wait than two batches can hold.
  unsent_done_.reserve(2 * kMaxBatch);
  watcher_ = std::thread([this] { Watch(); });
}

ArenaExpertSource::~ArenaExpertSource() {
  ArenaExpertSource::End();  // named, since a destructor does not dispatch
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (current_ != nullptr) current_->attachment->Hangup();
  }
  changed_.notify_all();
  watcher_.join();
}

std::shared_ptr<ArenaExpertSource::Link> ArenaExpertSource::CurrentLink() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

bool ArenaExpertSource::TryPin(uint32_t position, ExpertId id, uint32_t expert) {
  const shm::ArenaClient& client = link_->client();
  const std::optional<uint32_t> slot = link_->client().TryPin(expert);
  if (!slot) return false;
  const shm::LayerRecord& layer = client.table().layers()[id.layer];
  const shm::ClassRecord& size_class = client.table().classes()[layer.size_class];
  ReadyExpert ready{position, id, {}};
  for (uint32_t p = 0; p < layer.parts; ++p) {
    ready.parts.part[p] =
        client.arena() + shm::TableView::PartOffset(layer, size_class, id.index, *slot, p);
    ready.parts.layout[p] = layer.layout[p];
  }
  ready_.push_back(ready);
  ready_slots_.push_back(*slot);
  return true;
}

void ArenaExpertSource::Begin(std::span<const ExpertId> experts, ExpertPriority priority) {
  priority_ = priority;
  link_ = CurrentLink();
  batch_status_ = link_ == nullptr ? Gone() : absl::OkStatus();
  if (link_ == nullptr) return;
  if (link_->number != link_number_) unsent_done_.clear();  // meant for a store that is gone
  link_number_ = link_->number;
  shm::ArenaClient& client = link_->client();
  // Failures of an earlier batch that ended before it read them.
  while (client.TakeFailure().has_value()) {
  }
  const std::span<const shm::LayerRecord> layers = client.table().layers();
  for (uint32_t i = 0; i < experts.size(); ++i) {
    const ExpertId id = experts[i];
    if (id.layer >= layers.size() || id.index >= layers[id.layer].experts || i >= kMaxBatch) {
      batch_status_ = absl::InvalidArgumentError(
          absl::StrCat("expert ", id.index, " of layer ", id.layer,
                       " is not in the expert store's model, or the batch has more than ",
                       kMaxBatch, " experts"));
      return;
    }
    const uint32_t expert = layers[id.layer].first_expert + id.index;
    if (!TryPin(i, id, expert)) wanted_.push_back({i, id, expert, false});
  }
  counters_.hits += ready_.size();
  counters_.misses += wanted_.size();
  client.CountBatch(ready_.size(), wanted_.size());
  if (!wanted_.empty() && SendRequests()) client.Ring();
}

absl::StatusOr<std::span<const ReadyExpert>> ArenaExpertSource::Next() {
  if (!batch_status_.ok()) return batch_status_;
  ReleaseHandedOut();
  if (ready_.empty() && !wanted_.empty()) {
    const uint64_t start = NowNs();
    shm::ArenaClient& client = link_->client();
    for (;;) {
      const uint32_t wake = client.WakeCount();  // before looking, or a change could be missed
      const bool sent = SendRequests();
      if (Collect() || sent) client.Ring();
      if (!ready_.empty()) break;
      TakeFailures();
      if (batch_status_.ok() && link_->dead.load()) batch_status_ = Gone();
      if (!batch_status_.ok()) return batch_status_;
      client.Wait(wake, options_.spins, kWaitMs);
    }
    counters_.wait_ns += NowNs() - start;
  }
  std::swap(handed_out_, ready_);
  std::swap(handed_slots_, ready_slots_);
  return std::span<const ReadyExpert>(handed_out_);
}

void ArenaExpertSource::End() {
  if (link_ == nullptr) return;
  shm::ArenaClient& client = link_->client();
  bool ring = false;
  for (const Wanted& wanted : wanted_) {
    if (!wanted.sent) continue;
    unsent_done_.push_back(wanted.expert);
    ring = true;  // so that a cancelled read does not go to the drive
  }
  wanted_.clear();
  SendRequests();
  for (const uint32_t slot : ready_slots_) client.Unpin(slot);
  ready_.clear();
  ready_slots_.clear();
  ReleaseHandedOut();
  if (ring) client.Ring();
  link_.reset();  // the last one to hold a dead store's memory frees it
}

void ArenaExpertSource::ReleaseHandedOut() {
  for (const uint32_t slot : handed_slots_) link_->client().Unpin(slot);
  handed_out_.clear();
  handed_slots_.clear();
  if (sweeping_ || link_->client().StoreStarved()) link_->client().Ring();
}

bool ArenaExpertSource::SendRequests() {
  shm::ArenaClient& client = link_->client();
  while (!unsent_done_.empty()) {
    if (!client.Push({shm::RequestOp::kDone, priority_, unsent_done_.back()})) return true;
    unsent_done_.pop_back();
  }
  bool sent = false;
  for (Wanted& wanted : wanted_) {
    if (wanted.sent) continue;
    if (!client.Push({shm::RequestOp::kWant, priority_, wanted.expert})) return true;
    wanted.sent = sent = true;
  }
  return sent;
}

bool ArenaExpertSource::Collect() {
  shm::ArenaClient& client = link_->client();
  const size_t before = wanted_.size();
  std::erase_if(wanted_, [&](const Wanted& wanted) {
    if (!TryPin(wanted.position, wanted.id, wanted.expert)) return false;
    // Our pin holds it from now on.
    if (wanted.sent) unsent_done_.push_back(wanted.expert);
    return true;
  });
  if (wanted_.size() == before) return false;
  while (!unsent_done_.empty() &&
         client.Push({shm::RequestOp::kDone, priority_, unsent_done_.back()})) {
    unsent_done_.pop_back();
  }
  return client.StoreStarved();
}

void ArenaExpertSource::TakeFailures() {
  while (const auto failure = link_->client().TakeFailure()) {
    const auto hit = std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& wanted) {
      return wanted.expert == failure->expert;
    });
    if (hit == wanted_.end()) continue;  // of a batch that ended before
    batch_status_ = failure->status;
    wanted_.erase(hit);
  }
}

void ArenaExpertSource::LookAhead(std::span<const ExpertId> experts, ExpertPriority priority) {
  const std::shared_ptr<Link> link = CurrentLink();
  if (link == nullptr) return;
  shm::ArenaClient& client = link->client();
  if (!client.Push({shm::RequestOp::kCancelLookAhead, ExpertPriority::kLookAhead, 0})) return;
  const bool prompt = priority != ExpertPriority::kDecode;
  const uint64_t asked =
      Ask(*link, shm::RequestOp::kLookAhead,
          prompt ? ExpertPriority::kPrompt : ExpertPriority::kLookAhead, experts, false);
  counters_.looked_ahead += asked;
  sweeping_ = prompt && asked > 0;
}

void ArenaExpertSource::Promote(std::span<const ExpertId> experts) {
  const std::shared_ptr<Link> link = CurrentLink();
  if (link == nullptr || experts.empty()) return;
  Ask(*link, shm::RequestOp::kPromote, ExpertPriority::kBackground, experts, false);
}

void ArenaExpertSource::HeldElsewhere(std::span<const ExpertId> experts) {
  const std::shared_ptr<Link> link = CurrentLink();
  if (link == nullptr || experts.empty()) return;
  Ask(*link, shm::RequestOp::kElsewhere, ExpertPriority::kBackground, experts, true);
}

uint64_t ArenaExpertSource::Ask(const Link& link, shm::RequestOp op, ExpertPriority priority,
                                std::span<const ExpertId> experts, bool in_memory) {
  shm::ArenaClient& client = link.client();
  const std::span<const shm::LayerRecord> layers = client.table().layers();
  uint64_t asked = 0;
  for (const ExpertId id : experts) {
    if (id.layer >= layers.size() || id.index >= layers[id.layer].experts) continue;
    const uint32_t expert = layers[id.layer].first_expert + id.index;
    if (client.Resident(expert) != in_memory) continue;
    if (!client.Push({op, priority, expert})) break;
    ++asked;
  }
  client.Ring();
  return asked;
}

void ArenaExpertSource::CountUses(std::span<const ExpertUse> uses, ExpertPriority priority) {
  const std::shared_ptr<Link> link = CurrentLink();
  if (link == nullptr) return;
  shm::ArenaClient& client = link->client();
  const std::span<const shm::LayerRecord> layers = client.table().layers();
  const bool prompt = priority != ExpertPriority::kDecode;
  for (const ExpertUse& use : uses) {
    if (use.id.layer >= layers.size() || use.id.index >= layers[use.id.layer].experts) continue;
    client.NoteUse({layers[use.id.layer].first_expert + use.id.index,
                    std::min(use.tokens, shm::ExpertUse::kMaxTokens), prompt});
  }
}

void ArenaExpertSource::FindResident(uint16_t layer, std::span<uint8_t> in_memory) const {
  std::fill(in_memory.begin(), in_memory.end(), uint8_t{0});
  const std::shared_ptr<Link> link = CurrentLink();
  if (link == nullptr) return;
  const shm::ArenaClient& client = link->client();
  if (layer >= client.table().layers().size()) return;
  const shm::LayerRecord& record = client.table().layers()[layer];
  const size_t count = std::min<size_t>(in_memory.size(), record.experts);
  for (uint32_t e = 0; e < count; ++e) {
    in_memory[e] = client.Resident(record.first_expert + e) ? 1 : 0;
  }
}

bool ArenaExpertSource::HoldsAll() const {
  const std::shared_ptr<Link> link = CurrentLink();
  if (link == nullptr) return false;
  const shm::TableView& table = link->client().table();
  return table.header().usable_slots.load(std::memory_order_relaxed) >= table.experts();
}

absl::Status ArenaExpertSource::WaitUntilReady(int timeout_ms) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                        [this] { return current_ != nullptr; })) {
    return absl::OkStatus();
  }
  return connect_status_;
}

ExpertCounters ArenaExpertSource::counters() const {
  ExpertCounters counters = counters_;
  counters.connections = connections_.load();
  return counters;
}

void ArenaExpertSource::Watch() {
  auto retry = kFirstRetry;
  for (;;) {
    auto attachment = shm::Attachment::Connect(options_.attach_path, options_.fingerprint);
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (!attachment.ok()) {
      // Not there yet is ordinary while a store restarts; anything else deserves one line.
      if (attachment.status().code() != absl::StatusCode::kUnavailable &&
          attachment.status() != connect_status_) {
        LogWarning("expert store at '", options_.attach_path, "': ", attachment.status().message());
      }
      connect_status_ = attachment.status();
      changed_.wait_for(lock, retry, [this] { return stopping_; });
      if (stopping_) return;
      retry = std::min(2 * retry, kLastRetry);
      continue;
    }
    retry = kFirstRetry;
    auto link = std::make_shared<Link>();
    link->attachment = *std::move(attachment);
    link->number = connections_.fetch_add(1) + 1;
    current_ = link;
    lock.unlock();
    changed_.notify_all();

    link->attachment->WaitForEnd();

    // Before the batch learns of it: WaitUntilReady must not find the dead one ready.
    lock.lock();
    current_.reset();
    connect_status_ = Gone();
    link->dead.store(true);
    link->client().WakeSelf();
    if (stopping_) return;
    LogWarning("expert store at '", options_.attach_path, "' is gone");
  }
}

}  // namespace strata::compute
