// Policies by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/policy/eviction_policy.h"
#include "common/policy/hotness.h"

#include "absl/status/statusor.h"

namespace strata::policy {

// "lru", "layer-lru" or "lfu"; "auto" chooses by capacity: below two token cycles (the experts that
// two tokens use in all layers) `layer-lru`, since a common list smaller than one cycle hits
// nothing; above `lru`, which gives each layer what it needs.
std::string_view Choose(std::string_view name, const Shape& shape);

// InvalidArgument for an unknown name. `hotness` must outlive the policy.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> Make(std::string_view name, const Shape& shape,
                                                     const Hotness& hotness);

}  // namespace strata::policy
