// Whose turn it is. A bounded queue in front of compute: as many requests run as compute has
// sequences; the others wait, first come first served among one client's requests and in turn
// between clients, so an agent with fifty requests does not shut out a person with one.
//
// Not thread-safe: used on the server's thread only. Free of sockets, so its order is tested as
// plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace strata::gateway {

class Admission {
 public:
  using Clock = std::chrono::steady_clock;

  // Place in the queue, then a share of compute. Destroying it gives both up.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    bool granted() const { return granted_; }
    // 1 = next; 0 once granted.
    uint32_t position() const;
    // Time from Enter to the grant (or until now).
    Clock::duration waited() const;

   private:
    friend class Admission;
    Ticket() = default;
    Admission* owner_ = nullptr;
    std::string client_;
    uint32_t weight_ = 1;
    bool granted_ = false;
    Clock::time_point entered_;
    Clock::time_point granted_at_;
    std::function<void()> on_granted_;
  };

  // `slots` requests run at a time, `max_waiting` wait.
  Admission(uint32_t slots, uint32_t max_waiting) : slots_(slots), max_waiting_(max_waiting) {}

  // Compute said how many sequences it runs.
  void SetSlots(uint32_t slots);
  uint32_t slots() const { return slots_; }

  // A place for a request that needs `weight` sequences at once (n > 1). `on_granted` is called
  // when it may start, not from within Enter: look at granted() first. ResourceExhausted if the
  // queue is full. The Admission must outlive its tickets.
  absl::StatusOr<std::unique_ptr<Ticket>> Enter(const std::string& client, uint32_t weight,
                                                std::function<void()> on_granted);

  uint32_t running() const { return running_; }  // sequences
  uint32_t waiting() const { return waiting_; }  // requests
  // When a client that was turned away should come back: what waits, divided by how fast requests
  // have been finishing.
  uint32_t RetryAfterSeconds() const;

 private:
  void Leave(Ticket* ticket);
  void Grant();
  // The queue in the order in which requests will start.
  std::deque<const Ticket*> Order() const;

  uint32_t slots_;
  const uint32_t max_waiting_;
  uint32_t running_ = 0;
  uint32_t waiting_ = 0;
  double mean_seconds_ = 2;  // of finished requests, decaying
  std::map<std::string, std::deque<Ticket*>> queues_;
  std::deque<std::string> turns_;  // clients with waiting requests, next one first
};

}  // namespace strata::gateway
