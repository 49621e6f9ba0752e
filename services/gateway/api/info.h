// What the server says about itself: models, properties, health, metrics.
#pragma once

#include "services/gateway/api/context.h"
#include "services/gateway/http/message.h"

namespace strata::gateway {

Response ListModels(const ApiContext& context, const Request& request);
Response ShowModel(const ApiContext& context, const Request& request);
Response ShowProperties(const ApiContext& context, const Request& request);
// 200 when requests can be served, else 503 with the reason. Looks only at what is known already.
Response Health(const ApiContext& context, const Request& request);
Response Welcome(const ApiContext& context, const Request& request);
// On the server's thread.
Response MetricsText(const ApiContext& context, uint32_t connections);

}  // namespace strata::gateway
