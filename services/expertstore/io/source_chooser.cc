#include "services/expertstore/io/source_chooser.h"

namespace strata::expertstore {

SourceChooser::SourceChooser(uint32_t copies, uint32_t sources)
    : copies_(copies), sources_(sources), under_way_(sources), rest_(copies) {}

SourceChooser::Attempt SourceChooser::Choose(uint32_t expert) {
  uint32_t best = expert % copies_;
  for (uint32_t i = 0; i < copies_; ++i) {
    const uint32_t copy = (expert + i) % copies_;
    if (rest_[copy] > 0) {
      --rest_[copy];
    } else if (rest_[best] > 0 || under_way_[copy] < under_way_[best]) {
      best = copy;
    }
  }
  return {best, 0, false};
}

std::optional<SourceChooser::Attempt> SourceChooser::AfterFailure(Attempt attempt,
                                                                  bool wrong_bytes) {
  if (attempt.source < copies_) rest_[attempt.source] = kRest;
  if (wrong_bytes && !attempt.repeated) {
    attempt.repeated = true;
    return attempt;
  }
  attempt.failed |= 1ull << attempt.source;
  for (uint32_t source = 0; source < sources_; ++source) {
    if ((attempt.failed >> source & 1) != 0) continue;
    attempt.source = source;
    return attempt;
  }
  return std::nullopt;
}

}  // namespace strata::expertstore
