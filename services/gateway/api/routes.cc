#include "services/gateway/api/routes.h"

#include <utility>

#include "services/gateway/api/cache_explain.h"
#include "services/gateway/api/chat_request.h"
#include "services/gateway/api/chat_shape.h"
#include "services/gateway/api/completion_request.h"
#include "services/gateway/api/completion_shape.h"
#include "services/gateway/api/info.h"
#include "services/gateway/api/tokens.h"

namespace strata::gateway {
namespace {

namespace asio = boost::asio;

asio::awaitable<void> Chat(ApiContext& context, Exchange& exchange) {
  ChatResult result;
  co_await context.pool->Run([&] {
    result = ReadChatRequest(context, exchange.request().body, exchange.request().tenant);
  });
  if (result.error) {
    Response response = ErrorResponse(*result.error);
    co_await exchange.Respond(std::move(response));
    co_return;
  }
  const AnswerPlan& plan = result.request.plan;
  ChatShape shape(context.model, result.request.model, plan.logprobs, plan.include_usage);
  co_await RunAnswer(context, exchange, plan, shape);
}

asio::awaitable<void> Complete(ApiContext& context, Exchange& exchange) {
  CompletionResult result;
  co_await context.pool->Run(
      [&] { result = ReadCompletionRequest(context, exchange.request().body); });
  if (result.error) {
    Response response = ErrorResponse(*result.error);
    co_await exchange.Respond(std::move(response));
    co_return;
  }
  CompletionShape shape(context.model, result.model, &result.plan);
  co_await RunAnswer(context, exchange, result.plan, shape);
}

// A handler that only computes, on the pool because its input may be large.
using Compute = Response (*)(const ApiContext&, const Request&);

asio::awaitable<void> OnPool(ApiContext& context, Exchange& exchange, Compute compute) {
  Response response;
  co_await context.pool->Run([&] { response = compute(context, exchange.request()); });
  co_await exchange.Respond(std::move(response));
}

asio::awaitable<void> AtOnce(ApiContext& context, Exchange& exchange, Compute compute) {
  Response response = compute(context, exchange.request());
  co_await exchange.Respond(std::move(response));
}

asio::awaitable<void> PrintMetrics(ApiContext& context, Exchange& exchange, uint32_t connections) {
  Response response = MetricsText(context, connections);
  co_await exchange.Respond(std::move(response));
}

}  // namespace

Router BuildRouter(ApiContext* context, std::function<uint32_t()> connections) {
  Router router;
  const auto add = [&](const char* method, const char* path, bool is_public, Compute compute,
                       bool on_pool) {
    router.Add({method, path, is_public, [context, compute, on_pool](Exchange& exchange) {
                  return on_pool ? OnPool(*context, exchange, compute)
                                 : AtOnce(*context, exchange, compute);
                }});
  };
  router.Add({"POST", "/v1/chat/completions", false,
              [context](Exchange& exchange) { return Chat(*context, exchange); }});
  router.Add({"POST", "/v1/completions", false,
              [context](Exchange& exchange) { return Complete(*context, exchange); }});
  router.Add({"POST", "/v1/cache/explain", false,
              [context](Exchange& exchange) { return ExplainPrompt(*context, exchange); }});
  router.Add({"GET", "/v1/cache/explain/{id}", false,
              [context](Exchange& exchange) { return ExplainAnswer(*context, exchange); }});
  add("POST", "/tokenize", false, Tokenize, true);
  add("POST", "/detokenize", false, Detokenize, true);
  add("POST", "/apply-template", false, ApplyTemplate, true);
  add("GET", "/v1/models", false, ListModels, false);
  add("GET", "/v1/models/{id}", false, ShowModel, false);
  add("GET", "/props", false, ShowProperties, false);
  add("GET", "/health", true, Health, false);
  add("GET", "/v1/health", true, Health, false);
  add("GET", "/", true, Welcome, false);
  router.Add({"GET", "/metrics", false,
              [context, connections = std::move(connections)](Exchange& exchange) {
                return PrintMetrics(*context, exchange, connections());
              }});
  return router;
}

}  // namespace strata::gateway
