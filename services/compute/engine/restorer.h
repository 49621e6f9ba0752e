// Fetches saved state on a thread of its own and feeds it to the step loop block by block.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "services/compute/engine/inbox.h"
#include "services/compute/state/state_store.h"

namespace strata::compute {

class Restorer {
 public:
  // Blocks on the way to the step loop at any time. Blocks are megabytes: a long prompt restored
  // into memory as a whole would need as much again as its K/V.
  static constexpr int kMaxInFlight = 4;

  // `store` and `inbox` outlive this object.
  Restorer(StateStore& store, Inbox& inbox);
  ~Restorer();

  // Posts RestoredBlockMessages and one RestoreDoneMessage for the sequence.
  void Start(SequenceId id, v1::RestorePlan plan, std::string request_id);
  // Ends the restore of a sequence early; its RestoreDoneMessage still comes.
  void Cancel(SequenceId id);
  // The step loop has used a block.
  void BlockConsumed();

 private:
  struct Job {
    SequenceId id = 0;
    v1::RestorePlan plan;
    std::string request_id;
  };
  void Run();
  bool WaitForPlace(SequenceId id);

  StateStore& store_;
  Inbox& inbox_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  SequenceId cancelled_ = 0;  // of the job that runs
  SequenceId active_ = 0;
  int in_flight_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace strata::compute
