// A whole gateway on a loopback port: real sockets, tiny model, scripted engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/json/value.hpp>

#include "services/gateway/api/cache_explain.h"
#include "services/gateway/api/replay.h"
#include "services/gateway/api/routes.h"
#include "services/gateway/http/server.h"
#include "services/gateway/testing/fake_engine.h"
#include "services/gateway/testing/raw_client.h"
#include "services/gateway/testing/tiny_model.h"

namespace strata::gateway::testing {

class Gateway {
 public:
  struct Options {
    std::vector<std::string> words;  // of the tiny model
    std::string prompt_tail;
    uint32_t slots = 4;
    uint32_t max_queue = 8;
    std::chrono::milliseconds heartbeat{10000};
    v1::SpliceMode splice = v1::SPLICE_OFF;
    ServerOptions server;
  };
  Gateway(FakeEngine::Writer writer, Options options);
  ~Gateway();

  uint16_t port() const { return server_->ports()[0]; }
  FakeEngine& engine() { return engine_; }
  HttpServer& server() { return *server_; }
  const TinyModel& model() const { return model_; }

  RawResponse Post(std::string_view path, std::string_view body,
                   std::string_view extra_headers = "");
  RawResponse Get(std::string_view path);
  // Waits until nothing generates any more.
  bool WaitIdle();

 private:
  TinyModel model_;
  FakeEngine engine_;
  Metrics metrics_;
  WorkPool pool_{2};
  Admission admission_;
  RecentPlans recent_;
  ReplayBook replays_{&engine_};
  ApiContext context_;
  std::unique_ptr<HttpServer> server_;
};

// The events of an SSE body: each "data:" text; comments are left out.
std::vector<std::string> Events(std::string_view body);
// Replaces the letters and digits behind each `prefix` by `mask`: ids and times differ from run to
// run.
std::string Masked(std::string text, std::string_view prefix, std::string_view mask);
// Parsed JSON; null if it is none.
boost::json::value Json(std::string_view text);

}  // namespace strata::gateway::testing
