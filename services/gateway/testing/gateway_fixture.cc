#include "services/gateway/testing/gateway_fixture.h"

#include <cctype>

#include "common/base/eventually.h"
#include "services/gateway/json/json.h"

namespace strata::gateway::testing {

Gateway::Gateway(FakeEngine::Writer writer, Options options)
    : model_(std::move(options.words)),
      engine_(std::move(writer)),
      admission_(options.slots, options.max_queue) {
  model_.set_prompt_tail(options.prompt_tail);
  v1::DescribeResponse description = *engine_.description();
  description.set_max_sequences(options.slots);
  engine_.set_description(description);
  context_.engine = &engine_;
  context_.model = &model_;
  context_.admission = &admission_;
  context_.metrics = &metrics_;
  context_.pool = &pool_;
  context_.recent = &recent_;
  context_.replays = &replays_;
  context_.aliases = {"alias", "vendor/alias:7b"};
  context_.heartbeat = options.heartbeat;
  context_.splice = options.splice;
  context_.retry.first_delay = std::chrono::milliseconds(1);
  context_.retry.max_delay = std::chrono::milliseconds(5);
  options.server.listen = {"127.0.0.1:0"};
  options.server.auth_failure_delay_ms = 0;
  options.server.on_done = [this](const std::string& route, int status, double seconds) {
    metrics_.Answered(route, status, seconds);
  };
  server_ = *HttpServer::Start(std::move(options.server));
  server_->Serve(BuildRouter(&context_, [this] { return server_->connections(); }));
}

Gateway::~Gateway() {
  server_->Stop(0);
  engine_.Join();  // its callbacks use the server's executor
}

RawResponse Gateway::Post(std::string_view path, std::string_view body,
                          std::string_view extra_headers) {
  return Fetch(port(), "POST", path, body, extra_headers);
}

RawResponse Gateway::Get(std::string_view path) { return Fetch(port(), "GET", path); }

bool Gateway::WaitIdle() {
  return Eventually([this] { return engine_.running() == 0; });
}

std::vector<std::string> Events(std::string_view body) {
  std::vector<std::string> events;
  while (!body.empty()) {
    const size_t end = body.find("\n\n");
    const std::string_view event = body.substr(0, end);
    if (event.starts_with("data: ")) events.emplace_back(event.substr(6));
    if (end == std::string_view::npos) break;
    body.remove_prefix(end + 2);
  }
  return events;
}

std::string Masked(std::string text, std::string_view prefix, std::string_view mask) {
  for (size_t i = text.find(prefix); i != std::string::npos; i = text.find(prefix, i)) {
    i += prefix.size();
    size_t end = i;
    while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
    text.replace(i, end - i, mask);
  }
  return text;
}

boost::json::value Json(std::string_view text) {
  auto parsed = ParseJson(text);
  return parsed.ok() ? *std::move(parsed) : boost::json::value();
}

}  // namespace strata::gateway::testing
