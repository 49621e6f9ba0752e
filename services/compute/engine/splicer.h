// Puts moved rows into a sequence's K/V memory and decides what is read again. Used by the step
// loop, on its thread.
//
// A moved row was computed behind another text. How much that changed it shows first where it is
// cheap to see: the K/V of layer 0 depend on token and position alone, so running all moved tokens
// through layer 0 gives their exact keys of layer 1, at a cost of one layer. The tokens whose keys
// differ most from the moved ones are those that looked at the changed text; they are read again in
// all layers. (Selective recomputation: Yao et al., "CacheBlend", 2024; reading the first tokens
// again: Hu et al., "EPIC", 2024.)
#pragma once

#include "services/compute/engine/engine.h"
#include "services/compute/engine/sequence.h"

namespace strata::compute {

class Splicer {
 public:
  // `scratch` and what `parts` points to must outlive it; `rows` tokens at most in one probe.
  Splicer(const Engine::Parts& parts, Scratch& scratch, int rows, double budget)
      : parts_(parts), scratch_(scratch), rows_(rows), budget_(budget) {}

  // Prepares a new sequence for its plan's runs. A plan that makes no sense is logged and its runs
  // are read.
  void Prepare(Sequence& sequence) const;

  // Takes the bytes of the `index`-th block of the runs.
  void TakeBlock(Sequence& sequence, size_t index, std::span<const std::byte> bytes);

  // After the last block: decides what is read. If sequence.splice.probing is set then, Probe must
  // be called until it is not.
  void Begin(Sequence& sequence);
  void Probe(Sequence& sequence);

 private:
  double BudgetOf(const Sequence& sequence) const;
  void SetReadingOrder(Sequence& sequence, std::span<const int32_t> again);
  absl::Status CompareKeys(Sequence& sequence, int first, int last);

  Engine::Parts parts_;
  Scratch& scratch_;
  int rows_;
  double budget_;
};

}  // namespace strata::compute
