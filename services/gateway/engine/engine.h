// The way to compute and kvstore as the API sees it. Free of gRPC: tests put a scripted engine
// here.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "strata/v1/compute.pb.h"
#include "strata/v1/expertstore.pb.h"
#include "strata/v1/kvstore.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway {

// A running generation. Destroying it cancels.
class EngineCall {
 public:
  virtual ~EngineCall() = default;
};

struct EngineCallbacks {
  // Called from the engine's threads, one at a time.
  // First, if kvstore was asked: what of the prompt is stored. May be empty.
  std::function<void(const v1::PlanResponse&)> on_plan;
  std::function<void(v1::GenerateEvent)> on_event;
  // Last, exactly once: OK after the Finish event, else what went wrong. Also after a cancellation.
  std::function<void(absl::Status)> on_done;
};

// What the other daemons said last; empty parts are not reachable.
struct EngineStatus {
  bool has_compute = false;
  bool has_kvstore = false;
  bool has_expertstore = false;
  v1::ComputeStatusResponse compute;
  v1::KvStoreStatusResponse kvstore;
  v1::ExpertStoreStatusResponse expertstore;
};

enum class EngineState {
  kStarting,  // compute has not answered yet
  kReady,
  kLost,   // it answered before and does not now; it is probably being restarted
  kWrong,  // it runs another model than this gateway speaks for
};

// Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual EngineState state() const = 0;
  // Why the state is not kReady, for people.
  virtual std::string reason() const = 0;
  // What compute said about its model; null until it first answered.
  virtual std::shared_ptr<const v1::DescribeResponse> description() const = 0;
  virtual EngineStatus status() const = 0;
  // Starts a generation; stored state of the same tenant may be reused. Never blocks.
  virtual std::unique_ptr<EngineCall> Generate(v1::GenerateRequest request, std::string tenant,
                                               EngineCallbacks callbacks) = 0;
  // What kvstore would make of a prompt now; nothing counts as used. Waits for it, so not on the
  // server's thread. Unavailable if there is no kvstore.
  virtual absl::StatusOr<v1::PlanResponse> Explain(v1::PlanRequest request, std::string tenant) = 0;
  // A small memory under names that outlives this process where there is a kvstore. Remember
  // returns at once and may fail silently. Recall waits for kvstore, but not long; NotFound only if
  // it answered. Not on the server's thread.
  virtual void Remember(std::string name, std::string value) = 0;
  virtual absl::StatusOr<std::string> Recall(std::string name) = 0;
};

}  // namespace strata::gateway
