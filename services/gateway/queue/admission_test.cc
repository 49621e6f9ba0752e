#include "services/gateway/queue/admission.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace strata::gateway {
namespace {

using Ticket = std::unique_ptr<Admission::Ticket>;

Ticket Enter(Admission& admission, const std::string& client, uint32_t weight = 1) {
  auto ticket = admission.Enter(client, weight, nullptr);
  return ticket.ok() ? *std::move(ticket) : nullptr;
}

TEST(Admission, RunsUpToTheSlotsThenQueuesThenRefuses) {
  Admission admission(2, 2);
  const Ticket a = Enter(admission, "x");
  Ticket b = Enter(admission, "x");
  const Ticket c = Enter(admission, "x");
  const Ticket d = Enter(admission, "x");
  EXPECT_TRUE(a->granted() && b->granted());
  EXPECT_FALSE(c->granted() || d->granted());
  EXPECT_EQ(c->position(), 1);
  EXPECT_EQ(d->position(), 2);
  const auto refused = admission.Enter("x", 1, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(admission.RetryAfterSeconds(), 1);
  b.reset();
  EXPECT_TRUE(c->granted());
  EXPECT_EQ(c->position(), 0);
  EXPECT_EQ(d->position(), 1);
}

TEST(Admission, ClientsTakeTurns) {
  Admission admission(1, 100);
  Ticket running = Enter(admission, "greedy");
  std::vector<Ticket> greedy;
  for (int i = 0; i < 5; ++i) greedy.push_back(Enter(admission, "greedy"));
  Ticket person = Enter(admission, "person");
  Ticket person2 = Enter(admission, "person");
  EXPECT_EQ(greedy[0]->position(), 1);
  EXPECT_EQ(person->position(), 2);
  EXPECT_EQ(greedy[1]->position(), 3);
  EXPECT_EQ(person2->position(), 4);
  running.reset();
  EXPECT_TRUE(greedy[0]->granted());
  greedy[0].reset();
  EXPECT_TRUE(person->granted());
}

TEST(Admission, LeavingTheQueueTouchesNobodyElse) {
  Admission admission(1, 10);
  Ticket running = Enter(admission, "a");
  Ticket queued = Enter(admission, "b");
  const Ticket last = Enter(admission, "c");
  queued.reset();
  EXPECT_TRUE(running->granted());
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(last->position(), 1);
  running.reset();
  EXPECT_TRUE(last->granted());
}

TEST(Admission, WideRequestsWaitForRoomAndAreNotOvertaken) {
  Admission admission(4, 10);
  Ticket small = Enter(admission, "a");
  const Ticket wide = Enter(admission, "b", 4);
  const Ticket later = Enter(admission, "c");
  EXPECT_FALSE(wide->granted() || later->granted());
  small.reset();
  EXPECT_TRUE(wide->granted());
  EXPECT_FALSE(later->granted());
}

TEST(Admission, MoreSlotsStartWaitingRequestsAndCallThem) {
  Admission admission(1, 10);
  const Ticket first = Enter(admission, "a");
  int calls = 0;
  const auto second = admission.Enter("a", 1, [&] { ++calls; });
  EXPECT_EQ(calls, 0);
  admission.SetSlots(2);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE((*second)->granted());
}

// Whatever happens, nothing is lost: the counters return to zero and everybody gets a turn.
TEST(Admission, RandomComingsAndGoings) {
  std::mt19937 random(3);
  Admission admission(3, 20);
  {
    std::vector<Ticket> tickets;
    for (int step = 0; step < 20000; ++step) {
      if (random() % 2 == 0) {
        Ticket ticket = Enter(admission, std::string(1, static_cast<char>('a' + random() % 4)),
                              1 + random() % 4);
        if (ticket) tickets.push_back(std::move(ticket));
      } else if (!tickets.empty()) {
        tickets.erase(tickets.begin() + static_cast<int>(random() % tickets.size()));
      }
      uint32_t waiting = 0;
      for (const Ticket& ticket : tickets) waiting += ticket->granted() ? 0 : 1;
      ASSERT_EQ(waiting, admission.waiting());
      ASSERT_LE(admission.running(), 3);
      ASSERT_LE(admission.waiting(), 20);
      if (waiting > 0) {
        ASSERT_GT(admission.running(), 0);
      }
    }
  }
  EXPECT_EQ(admission.running(), 0);
  EXPECT_EQ(admission.waiting(), 0);
}

}  // namespace
}  // namespace strata::gateway
