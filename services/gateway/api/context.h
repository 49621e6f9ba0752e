// What all handlers of the API share.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/generation.h"
#include "services/gateway/http/pool.h"
#include "services/gateway/metrics/metrics.h"
#include "services/gateway/model/model.h"
#include "services/gateway/queue/admission.h"

namespace strata::gateway {

class RecentPlans;
class ReplayBook;

struct ApiContext {
  Engine* engine;
  const Model* model;
  Admission* admission;  // on the server's thread only
  Metrics* metrics;
  WorkPool* pool;
  RecentPlans* recent = nullptr;     // on the server's thread only; null = not kept
  ReplayBook* replays = nullptr;     // null: histories are rendered as they come
  std::vector<std::string> aliases;  // further names of the model
  std::chrono::milliseconds heartbeat{10000};
  Generation::RetryPolicy retry;
  v1::SpliceMode splice = v1::SPLICE_OFF;  // of requests that do not say
  int64_t started_unix = 0;                // `created` of the model list
};

}  // namespace strata::gateway
