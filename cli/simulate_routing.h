// Artificial routing with the statistics of real models.
//
// The router's logit of expert e for token t is
//   z = sqrt(vg) G + sqrt(vs) S(t) + sqrt(vf) F(t) + sqrt(vw) W(t),   vg + vs + vf + vw = 1,
// all unit Gaussians of one expert: G stays the same over a text; S (the topic) forgets with a time
// constant of `tau` tokens; F (the phrase) keeps a share `a` from token to token; W is new for
// every token. A token uses the k experts with the largest z. The four weights and two times were
// fitted to traces of Qwen3-30B and to published cache curves of DeepSeek V4.1 Flash (shares of the
// hottest experts, overlap with earlier tokens, unions of several tokens, hit rates of caches).
#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::cli {

struct RoutingFit {
  double vg = 0, vs = 0, vf = 0;
  double tau = 1, a = 0;
};

// A model as the simulation sees it.
struct SimulatedModel {
  std::string_view name;
  uint32_t layers = 0;
  uint32_t experts = 0;  // of a layer
  uint32_t used = 0;     // by a token in a layer
  double expert_bytes = 0;
  double dense_bytes = 0;  // read for every token besides experts
  RoutingFit fit;
};

// Qwen3-30B, Qwen3.8-Flash-Next, DeepSeek V4.1 Flash. Null for an unknown name.
const SimulatedModel* FindSimulatedModel(std::string_view name);

class RoutingGenerator {
 public:
  RoutingGenerator(const SimulatedModel& model, uint64_t seed);

  // The next token: for each layer the experts it uses, ascending.
  const std::vector<std::vector<uint32_t>>& Next();
  // Another text: half of a layer's fixed preferences stay (the model's own), half are drawn anew.
  void ChangeText();

 private:
  const SimulatedModel model_;
  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
  std::vector<float> own_, text_, topic_, phrase_;  // [layers * experts]
  std::vector<std::vector<uint32_t>> token_;
  std::vector<std::pair<float, uint32_t>> scores_;
};

}  // namespace strata::cli
