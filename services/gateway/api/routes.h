// All routes of the API. The context and what it points to must outlive the server.
#pragma once

#include <functional>

#include "services/gateway/api/context.h"
#include "services/gateway/http/router.h"

namespace strata::gateway {

// `connections` is asked when metrics are printed.
Router BuildRouter(ApiContext* context, std::function<uint32_t()> connections);

}  // namespace strata::gateway
