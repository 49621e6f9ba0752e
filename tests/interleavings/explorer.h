// Runs a few participants, again and again, in every order in which their steps can follow one
// another, as long as no more than a given number of switches happens where the one that ran could
// have gone on ("preemptions"). Most faults of concurrent programs need one or two of those.
//
// Depth first, by repeating: a run is the list of its choices; the next run repeats all but the
// last one that has an alternative left.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/fiber.h"

namespace strata::interleavings {

// What a run consists of. Made anew for each.
struct World {
  virtual ~World() = default;
  // All are started together; a run ends when all have returned.
  std::vector<std::function<void()>> participants;
  // After the run; not empty: what is wrong.
  virtual std::string Check() { return ""; }
};

struct Outcome {
  uint64_t runs = 0;
  uint64_t steps = 0;
  // Empty, or what went wrong in the last run, and who made a step when.
  std::string failure;
};

class Explorer {
 public:
  explicit Explorer(uint32_t preemptions) : preemptions_(preemptions) {}

  // All runs, until one fails.
  Outcome Explore(const std::function<std::unique_ptr<World>()>& make);

  // For participants.
  static Explorer& Current();
  void Step();
  // Not to go on before `condition` is true; it is evaluated between the steps of others and must
  // not make steps itself.
  void BlockUntil(std::function<bool()> condition);
  // Any number below `options`; every one of them in some run.
  uint32_t Choose(uint32_t options);
  // The run fails; the participant should return.
  void Fail(const std::string& what);

 private:
  struct Choice {
    uint32_t taken = 0;
    uint32_t options = 1;
  };
  struct Participant {
    std::unique_ptr<simt::Fiber> fiber;
    std::function<bool()> blocked;  // null: not
  };
  static void Main(void* participant);

  bool CanRun(size_t participant) const;
  uint32_t Decide(uint32_t options);
  // True if there is another run.
  bool NextRun();
  void Run(World& world);

  const uint32_t preemptions_;
  std::vector<Participant> participants_;
  World* world_ = nullptr;
  size_t running_ = 0;
  std::vector<Choice> choices_;
  size_t next_choice_ = 0;
  std::string failure_;
  std::string history_;
  uint64_t steps_ = 0;
};

}  // namespace strata::interleavings
