// Where the engine delivers what a request produces.
#pragma once

#include "strata/v1/compute.pb.h"

#include "absl/status/status.h"

namespace strata::compute {

// Called on the step thread: implementations queue and return, they never wait. OnFinish is the
// last call, exactly once; a cancelled request finishes with Cancelled.
class GenerateSink {
 public:
  virtual ~GenerateSink() = default;
  virtual void OnProgress(const v1::Progress& progress) = 0;
  virtual void OnTokens(const v1::TokenBatch& tokens) = 0;
  virtual void OnFinish(const absl::Status& status, const v1::Finish& finish) = 0;
};

class ScoreSink {
 public:
  virtual ~ScoreSink() = default;
  virtual void OnScores(const v1::ScoreChunk& chunk) = 0;
  virtual void OnFinish(const absl::Status& status) = 0;
};

}  // namespace strata::compute
