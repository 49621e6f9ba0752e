#include "common/policy/make_policy.h"

#include <numeric>
#include <set>

#include "common/base/status.h"
#include "common/policy/least_frequent.h"
#include "common/policy/least_recent.h"

namespace strata::policy {

std::string_view Choose(std::string_view name, const Shape& shape) {
  if (name != "auto") return name;
  const size_t layers = std::set(shape.layer.begin(), shape.layer.end()).size();
  const uint64_t slots =
      std::accumulate(shape.class_slots.begin(), shape.class_slots.end(), uint64_t{0});
  return slots < 2 * layers * shape.used_per_layer ? "layer-lru" : "lru";
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> Make(std::string_view name, const Shape& shape,
                                                     const Hotness& hotness) {
  const std::string_view chosen = Choose(name, shape);
  if (chosen == "lru") return std::make_unique<LeastRecent>(shape, /*by_layer=*/false);
  if (chosen == "layer-lru") return std::make_unique<LeastRecent>(shape, /*by_layer=*/true);
  if (chosen == "lfu") return std::make_unique<LeastFrequent>(shape, hotness);
  return absl::InvalidArgumentError(
      absl::StrCat("expert policy \"", A(name), "\" is not one of: auto, lru, layer-lru, lfu"));
}

}  // namespace strata::policy
