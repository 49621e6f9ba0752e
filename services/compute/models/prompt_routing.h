// Resident-only routing: while a prompt is read, choose among the experts that are in memory.
//
// For one token and layer, p is the router's distribution and F the k experts with the largest p.
// Let A be the experts that may be chosen and R the k best of A. The share of router mass that R
// loses is 1 - p(R) / p(F).
//
//   FULL      A = all experts. The bits of the result do not depend on where experts lie.
//   RESIDENT  A = the experts in memory.
//   GUARDED   A = the experts in memory, and some that tokens miss who lose more than the bound: as
//             long as there is such a token and the budget lasts, the expert joins A that saves
//             these tokens most of their mass together. The budget is a share of the experts that
//             FULL would read for this layer and step, at least one: the bound says for whom it is
//             worth reading, the budget how much. With a budget of 1 every token keeps to the
//             bound. What joined is read anyway, so all tokens of the step may choose it.
//
// Results of GUARDED and RESIDENT therefore depend on what is in memory, and so on what was asked
// before: that is their nature, not an error. A token whose F lies in A keeps the router's choice
// and weights to the bit.
//
// Cold start: if a layer has fewer than k experts in memory, the ones with the most router mass
// over the step's tokens join A until there are k. Only then does RESIDENT read anything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::compute {

enum class PromptRouting { kFull, kGuarded, kResident };

struct RoutingRule {
  PromptRouting mode = PromptRouting::kFull;
  float bound = 0;   // GUARDED: of the loss
  float budget = 1;  // GUARDED: share of the missing experts that may be read
};

// What restricted routing did. Sums over tokens and layers.
struct RoutingTally {
  uint64_t choices = 0;      // token-expert pairs
  uint64_t substituted = 0;  // of these, in R but not in F
  uint64_t decisions = 0;    // token-layer pairs
  double kept_mass = 0;      // sum of p(R) / p(F)
  uint64_t bytes_not_read = 0;

  void Add(const RoutingTally& other) {
    choices += other.choices;
    substituted += other.substituted;
    decisions += other.decisions;
    kept_mass += other.kept_mass;
    bytes_not_read += other.bytes_not_read;
  }
};

// One thread; keeps its scratch memory between calls.
class RestrictedRouter {
 public:
  // Restricts the choices of some tokens of one layer.
  //   logits   [tokens, experts]: the router's
  //   allowed  [experts]: 1 = in memory; experts that join A are set to 1
  //   ids      [tokens, k]: the router's choice F in descending order; becomes R, likewise
  //   weights  [tokens, k]: of F, normalised to sum 1; becomes those of R
  // Adds to everything in `tally` but bytes_not_read.
  void Restrict(const RoutingRule& rule, int k, std::span<const float> logits,
                std::span<uint8_t> allowed, std::span<int32_t> ids, std::span<float> weights,
                RoutingTally* tally);

 private:
  // Unnormalised p of one token: exp(logit - largest logit), 0 for what is not a number.
  std::span<const float> Probabilities(std::span<const float> logits);
  void FillUp(int k, std::span<const float> logits, std::span<uint8_t> allowed);
  // A token that loses more than the bound; its p divided by p(F) lies in guarded_p_.
  struct Loser {
    size_t token = 0;
    float kept = 0;     // p(R) / p(F)
    float weakest = 0;  // smallest of R
  };
  void Guard(const RoutingRule& rule, size_t used, std::span<const float> logits,
             std::span<uint8_t> allowed, std::span<const int32_t> ids);
  // Brings `loser` up to date with `allowed`.
  void Weigh(std::span<const float> p, std::span<const uint8_t> allowed, size_t used, Loser* loser);
  // best_ = the k experts of `allowed` with the largest p, descending, lower index first.
  void ChooseBest(int k, std::span<const float> p, std::span<const uint8_t> allowed);

  std::vector<float> p_;
  std::vector<double> mass_;
  std::vector<uint8_t> missing_;  // chosen by some token, not in memory
  std::vector<Loser> losers_;
  std::vector<float> guarded_p_;  // [losers, experts]
  std::vector<int32_t> best_;
};

}  // namespace strata::compute
