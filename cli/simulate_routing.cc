#include "cli/simulate_routing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace strata::cli {
namespace {

// Share of G that belongs to the model and not to the text: lists of hot experts made from one text
// cover about as much of another text as was measured.
constexpr double kOwnShare = 0.4;

constexpr RoutingFit kQwen{0.416, 0.200, 0.158, 39.5, 0.36};
constexpr RoutingFit kDeepSeek{0.415, 0.205, 0.075, 40, 0.5};

// Dense bytes: attention, shared experts and head in the formats these models are usually run in.
constexpr std::array kModels = {
    SimulatedModel{"qwen3-30b", 48, 128, 8, 2.65e6, 0.9e9, kQwen},
    SimulatedModel{"qwen3.8-flash-next", 48, 512, 10, 1.88e6, 2.0e9, kQwen},
    SimulatedModel{"deepseek-v4.1-flash", 40, 384, 6, 7.74e6, 8.8e9, kDeepSeek},
};

}  // namespace

const SimulatedModel* FindSimulatedModel(std::string_view name) {
  const auto* const found =
      std::find_if(kModels.begin(), kModels.end(), [&](const auto& m) { return m.name == name; });
  return found == kModels.end() ? nullptr : found;
}

RoutingGenerator::RoutingGenerator(const SimulatedModel& model, uint64_t seed)
    : model_(model), random_(seed), token_(model.layers), scores_(model.experts) {
  const size_t all = size_t{model.layers} * model.experts;
  for (std::vector<float>* values : {&own_, &text_, &topic_, &phrase_}) {
    values->resize(all);
    for (float& value : *values) value = normal_(random_);
  }
}

void RoutingGenerator::ChangeText() {
  for (float& value : text_) value = normal_(random_);
}

const std::vector<std::vector<uint32_t>>& RoutingGenerator::Next() {
  const RoutingFit& fit = model_.fit;
  const auto root = [](double share) {
    return static_cast<float>(std::sqrt(std::max(0.0, share)));
  };
  const double keep = std::exp(-1 / fit.tau);
  const float topic_keep = static_cast<float>(keep);
  const float topic_new = root(1 - keep * keep);
  const float phrase_keep = static_cast<float>(fit.a);
  const float phrase_new = root(1 - fit.a * fit.a);
  const float own = root(fit.vg * kOwnShare);
  const float text = root(fit.vg * (1 - kOwnShare));
  const float topic = root(fit.vs);
  const float phrase = root(fit.vf);
  const float white = root(1 - fit.vg - fit.vs - fit.vf);
  for (uint32_t layer = 0; layer < model_.layers; ++layer) {
    for (uint32_t e = 0; e < model_.experts; ++e) {
      const size_t i = size_t{layer} * model_.experts + e;
      topic_[i] = topic_keep * topic_[i] + topic_new * normal_(random_);
      phrase_[i] = phrase_keep * phrase_[i] + phrase_new * normal_(random_);
      scores_[e] = {own * own_[i] + text * text_[i] + topic * topic_[i] + phrase * phrase_[i] +
                        white * normal_(random_),
                    e};
    }
    const auto middle = scores_.begin() + model_.used;
    std::nth_element(scores_.begin(), middle - 1, scores_.end(), std::greater<>());
    std::vector<uint32_t>& chosen = token_[layer];
    chosen.clear();
    for (auto it = scores_.begin(); it != middle; ++it) chosen.push_back(it->second);
    std::sort(chosen.begin(), chosen.end());
  }
  return token_;
}

}  // namespace strata::cli
