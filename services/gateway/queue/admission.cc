#include "services/gateway/queue/admission.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"

namespace strata::gateway {

Admission::Ticket::~Ticket() {
  if (owner_ != nullptr) owner_->Leave(this);
}

uint32_t Admission::Ticket::position() const {
  if (granted_) return 0;
  const std::deque<const Ticket*> order = owner_->Order();
  const auto place = std::find(order.begin(), order.end(), this);
  return static_cast<uint32_t>(place - order.begin()) + 1;
}

Admission::Clock::duration Admission::Ticket::waited() const {
  return (granted_ ? granted_at_ : Clock::now()) - entered_;
}

void Admission::SetSlots(uint32_t slots) {
  slots_ = std::max(slots, uint32_t{1});
  Grant();
}

absl::StatusOr<std::unique_ptr<Admission::Ticket>> Admission::Enter(
    const std::string& client, uint32_t weight, std::function<void()> on_granted) {
  const bool runs_at_once = waiting_ == 0 && running_ + weight <= slots_;
  if (!runs_at_once && waiting_ >= max_waiting_) {
    return absl::ResourceExhaustedError(absl::StrCat("The queue is full (", waiting_,
                                                     " requests wait); try again in ",
                                                     RetryAfterSeconds(), " s."));
  }
  std::unique_ptr<Ticket> ticket(new Ticket);
  ticket->owner_ = this;
  ticket->client_ = client;
  // A request wider than compute would never start: it runs alone instead.
  ticket->weight_ = std::min(weight, slots_);
  ticket->entered_ = Clock::now();
  std::deque<Ticket*>& queue = queues_[client];
  if (queue.empty()) turns_.push_back(client);
  queue.push_back(ticket.get());
  ++waiting_;
  Grant();
  ticket->on_granted_ = std::move(on_granted);
  return ticket;
}

void Admission::Grant() {
  while (!turns_.empty()) {
    const std::string client = turns_.front();
    std::deque<Ticket*>& queue = queues_[client];
    Ticket* ticket = queue.front();
    // The head waits until there is room for all of it; nobody overtakes, or it might wait forever.
    if (running_ > 0 && running_ + ticket->weight_ > slots_) return;
    turns_.pop_front();
    queue.pop_front();
    --waiting_;
    running_ += ticket->weight_;
    ticket->granted_ = true;
    ticket->granted_at_ = Clock::now();
    if (queue.empty()) {
      queues_.erase(client);
    } else {
      turns_.push_back(client);
    }
    if (ticket->on_granted_) ticket->on_granted_();
  }
}

void Admission::Leave(Ticket* ticket) {
  if (ticket->granted_) {
    running_ -= ticket->weight_;
    const std::chrono::duration<double> ran = Clock::now() - ticket->granted_at_;
    mean_seconds_ = 0.8 * mean_seconds_ + 0.2 * ran.count();
  } else {
    std::deque<Ticket*>& queue = queues_[ticket->client_];
    std::erase(queue, ticket);
    --waiting_;
    if (queue.empty()) {
      queues_.erase(ticket->client_);
      std::erase(turns_, ticket->client_);
    }
  }
  Grant();
}

std::deque<const Admission::Ticket*> Admission::Order() const {
  std::deque<const Ticket*> order;
  for (size_t round = 0; order.size() < waiting_; ++round) {
    for (const std::string& client : turns_) {
      const std::deque<Ticket*>& queue = queues_.at(client);
      if (round < queue.size()) order.push_back(queue[round]);
    }
  }
  return order;
}

uint32_t Admission::RetryAfterSeconds() const {
  const double seconds = mean_seconds_ * (waiting_ + 1) / std::max(slots_, uint32_t{1});
  return static_cast<uint32_t>(std::clamp(std::ceil(seconds), 1.0, 120.0));
}

}  // namespace strata::gateway
