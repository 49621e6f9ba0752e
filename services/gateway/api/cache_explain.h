// /v1/cache/explain: what of a prompt was stored already, and where it goes another way.
//
// POST with the body of a chat or plain completion asks about a prompt as things are now; GET with
// a request's id (X-Request-Id) tells what kvstore answered when that request came, for the
// last 64. A client sees only what its own tenant may reuse.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>

#include "services/gateway/api/context.h"
#include "services/gateway/http/exchange.h"
#include "strata/v1/kvstore.pb.h"

namespace strata::gateway {

struct RecentPlan {
  std::string request_id;
  std::string tenant;
  std::shared_ptr<const std::vector<uint32_t>> prompt;
  v1::PlanResponse plan;
};

// Not thread-safe.
class RecentPlans {
 public:
  static constexpr size_t kKept = 64;  // prompts have up to some hundred kilobytes

  void Add(RecentPlan plan);
  // Null if it is not known (any more) or another tenant's. Valid until the next Add.
  const RecentPlan* Find(std::string_view request_id, std::string_view tenant) const;

 private:
  std::deque<RecentPlan> plans_;  // the newest last
};

// The short form, for usage.
boost::json::object CacheJson(const v1::PlanResponse& plan);
// With the line that differs, in the prompt and as it is stored.
boost::json::object ExplanationJson(const Model& model, std::span<const uint32_t> prompt,
                                    const v1::PlanResponse& plan);

boost::asio::awaitable<void> ExplainPrompt(ApiContext& context, Exchange& exchange);
boost::asio::awaitable<void> ExplainAnswer(ApiContext& context, Exchange& exchange);

}  // namespace strata::gateway
