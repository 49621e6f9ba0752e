// The engine behind compute's and kvstore's gRPC services.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "services/gateway/engine/engine.h"
#include "strata/v1/config.pb.h"

#include "absl/status/statusor.h"

namespace strata::gateway {

struct GrpcEngineOptions {
  std::string compute;      // addresses as common/rpc takes them
  std::string kvstore;      // empty or "none": stored state is not used
  std::string expertstore;  // for its figures only; may be empty
  v1::TlsConfig tls;
  // Hash of the model whose tokens this gateway speaks; compute must run the same. Empty = any.
  std::string expected_fingerprint;
  // Of a plan, with a millisecond for every token of the prompt (GatewayConfig.plan_timeout_ms).
  std::chrono::milliseconds plan_timeout{200};
  // How long a kvstore that never answered may delay the state kReady: the first prompts after a
  // start are those that have most to gain from it.
  std::chrono::milliseconds kvstore_patience{3000};
  std::chrono::milliseconds watch_interval{500};
};

// Connects lazily: compute may come later, go away and come back. A thread keeps asking it for its
// description and the daemons for their status; nothing in Engine's functions waits for the
// network. The destructor waits for the last callbacks of cancelled calls.
absl::StatusOr<std::unique_ptr<Engine>> ConnectGrpcEngine(GrpcEngineOptions options);

}  // namespace strata::gateway
