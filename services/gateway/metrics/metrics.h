// What the gateway counts, as Prometheus text. Names: `strata:` for ours, and the `llamacpp:` ones
// that existing dashboards read. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "services/gateway/engine/engine.h"

namespace strata::gateway {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // An HTTP request was answered.
  void Answered(std::string_view route, int status, double seconds);
  void ConnectionRefused();
  // An answer ended: "stop", "length", "tool_calls", "cancelled", "error".
  void Finished(std::string_view reason);
  void Rejected(std::string_view reason);  // before generation: "queue_full", "context", ...
  void Resumed(uint32_t restarts);
  void QueueTime(double seconds);
  void FirstToken(double seconds);
  void BetweenTokens(double seconds, uint32_t tokens);
  void Prompt(uint32_t tokens, uint32_t cached, double seconds);
  void Generated(uint32_t tokens, double seconds);

  struct Gauges {
    uint32_t running = 0;
    uint32_t waiting = 0;
    uint32_t connections = 0;
  };
  std::string Text(const Gauges& gauges, const EngineStatus& engine);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gateway
