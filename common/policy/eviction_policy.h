// Which expert to give up when room is needed. Knows uses and what is resident; no memory, no pins.
//
// An expert's slot fits experts of its size class only, so the victim for an expert is looked for
// among the residents of that class. In a class, reading any expert back costs the same: what is
// kept is decided by use alone.
//
// Decoding and reading a prompt use experts differently: decoding comes back to a few, a prompt
// passes over nearly all, layer by layer, and does so again with every chunk. Hence every policy
// protects what decoding uses from what a prompt loads, and lets a prompt's experts replace one
// another.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"

namespace strata::policy {

enum class Phase : uint8_t {
  kDecode,
  kPrompt,
  kPromptAhead  // for Victim only: a prompt will need it; nothing that decoding uses goes for that
};

// Experts are numbered 0..n-1.
struct Shape {
  std::vector<uint32_t> layer;        // of each expert
  std::vector<uint32_t> size_class;   // of each expert
  std::vector<uint32_t> class_slots;  // by size class
  uint32_t used_per_layer = 1;        // experts of a layer that a token uses

  uint32_t experts() const { return static_cast<uint32_t>(layer.size()); }
};

// One thread. Every call takes constant time, Victim() if `may_go` refuses few.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // `tokens` tokens were routed to the expert, resident or not.
  virtual void Use(uint32_t expert, uint32_t tokens, Phase phase) = 0;
  // It is resident from now on: loaded because somebody uses it in this phase; or, with nullopt,
  // before anybody did (then the earlier call ranks higher).
  virtual void Insert(uint32_t expert, std::optional<Phase> phase) = 0;
  virtual void Erase(uint32_t expert) = 0;
  // The least valuable resident of the class of `incoming` that `may_go` accepts. `phase`: why
  // `incoming` is loaded.
  virtual std::optional<uint32_t> Victim(uint32_t incoming, Phase phase,
                                         absl::FunctionRef<bool(uint32_t)> may_go) = 0;
};

}  // namespace strata::policy
