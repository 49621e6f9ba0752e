// strata-gateway: the HTTP API in front of compute and kvstore.
#include <algorithm>
#include <ctime>

#include "common/base/log.h"
#include "common/rpc/daemon.h"
#include "services/gateway/api/cache_explain.h"
#include "services/gateway/api/replay.h"
#include "services/gateway/api/routes.h"
#include "services/gateway/api/sampling.h"
#include "services/gateway/engine/grpc_engine.h"
#include "services/gateway/http/server.h"
#include "services/gateway/model/gguf_model.h"

#include "absl/strings/str_join.h"

namespace strata::gateway {
namespace {

// Running answers may finish after SIGTERM; systemd waits longer than this before it kills.
constexpr uint32_t kStopGraceMs = 20000;
constexpr uint32_t kSlotsUntilDescribed = 1;

absl::StatusOr<ServerOptions> MakeServerOptions(const v1::GatewayConfig& config, Metrics* metrics) {
  ServerOptions options;
  options.listen.assign(config.listen().begin(), config.listen().end());
  options.insecure_bind = config.insecure_bind();
  options.max_body_bytes = config.max_body_bytes();
  options.max_header_bytes = config.max_header_bytes();
  options.header_timeout_ms = config.header_timeout_ms();
  options.body_timeout_ms = config.body_timeout_ms();
  options.write_timeout_ms = config.write_timeout_ms();
  options.max_connections = config.max_connections();
  const std::vector<std::string> files(config.api_key_file().begin(), config.api_key_file().end());
  STRATA_ASSIGN_OR_RETURN(options.access.keys, ApiKeys::Load(files));
  options.access.allowed_hosts.assign(config.allowed_host().begin(), config.allowed_host().end());
  options.access.allowed_origins.assign(config.allowed_origin().begin(),
                                        config.allowed_origin().end());
  options.on_done = [metrics](const std::string& route, int status, double seconds) {
    metrics->Answered(route, status, seconds);
  };
  options.on_connection_refused = [metrics] { metrics->ConnectionRefused(); };
  return options;
}

GrpcEngineOptions MakeEngineOptions(const v1::Config& config, const std::string& fingerprint) {
  GrpcEngineOptions options;
  options.compute = config.gateway().compute();
  options.kvstore = config.gateway().kvstore();
  options.expertstore = config.gateway().expertstore();
  options.tls = config.tls();
  options.expected_fingerprint = fingerprint;
  options.plan_timeout = std::chrono::milliseconds(config.gateway().plan_timeout_ms());
  return options;
}

absl::Status Serve(const v1::Config& config) {
  if (config.model().empty()) {
    return absl::InvalidArgumentError("no model: set `model` in the configuration or use --model");
  }
  STRATA_ASSIGN_OR_RETURN(const GgufModel model,
                          OpenGgufModel(config.model(), config.gateway().chat_template_file()));
  Metrics metrics;
  WorkPool pool(2);
  Admission admission(kSlotsUntilDescribed, config.gateway().max_queue());
  RecentPlans recent;
  ApiContext context;
  STRATA_ASSIGN_OR_RETURN(ServerOptions options, MakeServerOptions(config.gateway(), &metrics));
  if (options.access.keys.empty() && options.insecure_bind) {
    LogWarning("gateway.insecure_bind: whoever reaches this address may use the model");
  }
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                          HttpServer::Start(std::move(options)));
  // Below the server: its last callbacks use the server's thread.
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          ConnectGrpcEngine(MakeEngineOptions(config, model.fingerprint)));
  context.engine = engine.get();
  context.model = model.model.get();
  context.admission = &admission;
  context.metrics = &metrics;
  context.pool = &pool;
  context.recent = &recent;
  context.aliases.assign(config.gateway().model_alias().begin(),
                         config.gateway().model_alias().end());
  if (!model.other_name.empty()) context.aliases.push_back(model.other_name);
  context.heartbeat = std::chrono::milliseconds(config.gateway().heartbeat_ms());
  ReplayBook replays(engine.get());
  context.replays = &replays;
  context.splice = SpliceModeOf(config.gateway().splice());
  context.started_unix = std::time(nullptr);
  server->Serve(BuildRouter(&context, [&server] { return server->connections(); }));
  rpc::ServeUntilSignal(absl::StrCat("serving ", context.model->name(), " on ",
                                     absl::StrJoin(server->addresses(), ", ")));
  server->Stop(kStopGraceMs);
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::gateway

int main(int argc, char** argv) {
  return strata::rpc::DaemonMain(
      argc, argv,
      "strata-gateway: serves OpenAI's HTTP API for the model that strata-compute runs.\n"
      "Listens on 127.0.0.1:8080 unless `gateway { listen: ... }` says otherwise.",
      strata::gateway::Serve);
}
