// Which of several files with the same experts one is read from: copies on different drives share
// the work by how fast each gets on with it, and a copy that fails is left alone for a while.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace strata::expertstore {

// One thread.
class SourceChooser {
 public:
  // The course of one load.
  struct Attempt {
    uint32_t source = 0;
    uint64_t failed = 0;    // bit per source
    bool repeated = false;  // a source was read twice
  };

  // At most 64 sources. Sources 0..copies-1 are equal; those from `copies` to `sources`-1 are the
  // last resort.
  SourceChooser(uint32_t copies, uint32_t sources);

  // Where to read an expert first: the copy with the fewest reads under way, of equals the expert's
  // own, so that those of one layer are spread.
  Attempt Choose(uint32_t expert);
  void Started(const Attempt& attempt) { ++under_way_[attempt.source]; }
  void Ended(const Attempt& attempt) { --under_way_[attempt.source]; }

  // Where to read it after that failed. Wrong bytes may have been damaged on the way: then once
  // more from the same source. nullopt: every source has failed.
  std::optional<Attempt> AfterFailure(Attempt attempt, bool wrong_bytes);

 private:
  // Loads that go elsewhere before a copy that failed is tried again.
  static constexpr uint32_t kRest = 256;

  const uint32_t copies_;
  const uint32_t sources_;
  std::vector<uint32_t> under_way_;  // by source
  std::vector<uint32_t> rest_;       // by copy: choices that it still sits out
};

}  // namespace strata::expertstore
