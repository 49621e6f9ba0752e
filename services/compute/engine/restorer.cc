#include "services/compute/engine/restorer.h"

#include <algorithm>
#include <utility>

namespace strata::compute {

Restorer::Restorer(StateStore& store, Inbox& inbox)
    : store_(store), inbox_(inbox), thread_([this] { Run(); }) {}

Restorer::~Restorer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Restorer::Start(SequenceId id, v1::RestorePlan plan, std::string request_id) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({id, std::move(plan), std::move(request_id)});
  }
  changed_.notify_all();
}

void Restorer::Cancel(SequenceId id) {
  {
    const std::lock_guard lock(mutex_);
    if (active_ == id) {
      cancelled_ = id;
    } else if (std::erase_if(jobs_, [&](const Job& job) { return job.id == id; }) > 0) {
      inbox_.Post(RestoreDoneMessage{id});
    }
  }
  changed_.notify_all();
}

void Restorer::BlockConsumed() {
  {
    const std::lock_guard lock(mutex_);
    --in_flight_;
  }
  changed_.notify_all();
}

bool Restorer::WaitForPlace(SequenceId id) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ < kMaxInFlight || stopping_ || cancelled_ == id; });
  if (stopping_ || cancelled_ == id) return false;
  ++in_flight_;
  return true;
}

void Restorer::Run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      active_ = job.id;
    }
    store_.Restore(job.plan, job.request_id, [&](std::vector<std::byte> bytes) {
      if (!WaitForPlace(job.id)) return false;
      inbox_.Post(RestoredBlockMessage{job.id, std::move(bytes)});
      return true;
    });
    {
      const std::lock_guard lock(mutex_);
      active_ = 0;
      cancelled_ = 0;
    }
    inbox_.Post(RestoreDoneMessage{job.id});
  }
}

}  // namespace strata::compute
