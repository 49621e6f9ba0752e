#include "common/policy/least_frequent.h"

#include <cmath>
#include <limits>
#include <utility>

namespace strata::policy {
namespace {

uint64_t Mix(uint64_t x) {  // a bijection that scatters neighbours
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

LeastFrequent::LeastFrequent(Shape shape, const Hotness& hotness)
    : shape_(std::move(shape)),
      hotness_(hotness),
      places_(shape_.experts()),
      levels_(shape_.class_slots.size()) {}

int LeastFrequent::LevelOf(uint32_t expert) const {
  constexpr int kNever = std::numeric_limits<int>::min();
  const double value = hotness_.Raw(expert);
  return value > 0 ? static_cast<int>(std::floor(4 * std::log2(value))) : kNever;
}

void LeastFrequent::SortAnew() {
  epoch_ = hotness_.epoch();
  for (Levels& levels : levels_) levels.clear();
  for (uint32_t e = 0; e < places_.size(); ++e) {
    if (!std::exchange(places_[e].resident, false)) continue;
    Insert(e, std::nullopt);
  }
}

void LeastFrequent::Use(uint32_t expert, uint32_t /*tokens*/, Phase /*phase*/) {
  if (epoch_ != hotness_.epoch()) SortAnew();
  if (!places_[expert].resident || places_[expert].level == LevelOf(expert)) return;
  Erase(expert);
  Insert(expert, std::nullopt);
}

void LeastFrequent::Insert(uint32_t expert, std::optional<Phase> /*phase*/) {
  const int level = LevelOf(expert);
  std::vector<uint32_t>& members = levels_[shape_.size_class[expert]][level];
  places_[expert] = {true, level, members.size()};
  members.push_back(expert);
}

void LeastFrequent::Erase(uint32_t expert) {
  Place& place = places_[expert];
  Levels& levels = levels_[shape_.size_class[expert]];
  const auto level = levels.find(place.level);
  std::vector<uint32_t>& members = level->second;
  members[place.at] = members.back();
  places_[members[place.at]].at = place.at;
  members.pop_back();
  if (members.empty()) levels.erase(level);
  place.resident = false;
}

std::optional<uint32_t> LeastFrequent::Victim(uint32_t incoming, Phase /*phase*/,
                                              absl::FunctionRef<bool(uint32_t)> may_go) {
  const Levels& levels = levels_[shape_.size_class[incoming]];
  for (auto low = levels.begin(); low != levels.end();) {
    auto high = std::next(low);
    const bool together = high != levels.end() && high->first - 1 == low->first;
    const size_t first = low->second.size();
    const size_t all = first + (together ? high->second.size() : 0);
    const size_t start = Mix(++draws_) % all;
    for (size_t i = 0; i < all; ++i) {
      const size_t at = (start + i) % all;
      const uint32_t expert = at < first ? low->second[at] : high->second[at - first];
      if (may_go(expert)) return expert;
    }
    low = together ? std::next(high) : high;
  }
  return std::nullopt;
}

}  // namespace strata::policy
