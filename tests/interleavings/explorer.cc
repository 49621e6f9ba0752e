#include "tests/interleavings/explorer.h"

#include <utility>

namespace strata::interleavings {
namespace {

constexpr size_t kStackBytes = 256 << 10;
// A run that takes longer never ends.
constexpr uint64_t kMostSteps = 20000;

Explorer* current = nullptr;
bool inside = false;  // a participant runs

}  // namespace

void Step() {
  if (inside) Explorer::Current().Step();
}

Explorer& Explorer::Current() { return *current; }

void Explorer::Step() { simt::Fiber::Yield(); }

void Explorer::BlockUntil(std::function<bool()> condition) {
  participants_[running_].blocked = std::move(condition);
  simt::Fiber::Yield();
}

void Explorer::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

uint32_t Explorer::Choose(uint32_t options) { return Decide(options); }

uint32_t Explorer::Decide(uint32_t options) {
  if (options == 1) return 0;
  if (next_choice_ == choices_.size()) choices_.push_back({0, options});
  return choices_[next_choice_++].taken;
}

bool Explorer::NextRun() {
  choices_.resize(next_choice_);
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().options) {
    choices_.pop_back();
  }
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

void Explorer::Main(void* /*unused*/) { current->world_->participants[current->running_](); }

bool Explorer::CanRun(size_t participant) const {
  const Participant& p = participants_[participant];
  return !p.fiber->finished() && (!p.blocked || p.blocked());
}

void Explorer::Run(World& world) {
  world_ = &world;
  participants_.resize(world.participants.size());
  for (Participant& participant : participants_) {
    if (!participant.fiber) participant.fiber = std::make_unique<simt::Fiber>(kStackBytes);
    participant.blocked = nullptr;
    participant.fiber->Start(Main, nullptr);
  }
  next_choice_ = 0;
  history_.clear();
  uint32_t preemptions = 0;
  std::vector<size_t> able;
  for (uint64_t step = 0;; ++step) {
    able.clear();
    bool unfinished = false;
    // The one that ran comes first: going on is the choice without a preemption.
    const bool go_on = step > 0 && CanRun(running_);
    if (go_on) able.push_back(running_);
    for (size_t p = 0; p < participants_.size(); ++p) {
      unfinished |= !participants_[p].fiber->finished();
      if ((!go_on || p != running_) && CanRun(p)) able.push_back(p);
    }
    if (!unfinished || !failure_.empty()) return;
    if (able.empty()) return Fail("all wait and nobody will wake them");
    if (step == kMostSteps) return Fail("does not end");
    if (go_on && preemptions == preemptions_) able.resize(1);
    const size_t next = able[Decide(static_cast<uint32_t>(able.size()))];
    if (go_on && next != running_) ++preemptions;
    if (next != running_ || step == 0) {
      history_ += " " + std::to_string(step) + ":" + std::to_string(next);
    }
    running_ = next;
    participants_[next].blocked = nullptr;
    ++steps_;
    inside = true;
    participants_[next].fiber->Resume();
    inside = false;
  }
}

Outcome Explorer::Explore(const std::function<std::unique_ptr<World>()>& make) {
  current = this;
  Outcome outcome;
  do {
    const std::unique_ptr<World> world = make();
    Run(*world);
    ++outcome.runs;
    if (failure_.empty()) failure_ = world->Check();
  } while (failure_.empty() && NextRun());
  outcome.steps = steps_;
  if (!failure_.empty()) {
    outcome.failure = failure_ + "; from which step on who ran:" + history_;
  }
  current = nullptr;
  return outcome;
}

}  // namespace strata::interleavings
