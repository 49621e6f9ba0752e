#include "services/gateway/chat/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace strata::gateway {

size_t PartialSuffix(std::string_view text, std::string_view word) {
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == word.substr(0, n)) return n;
  }
  return 0;
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return {};
  if (stops_.empty()) return std::string(text);
  const size_t known = pending_.size();
  pending_.append(text);
  size_t best_end = std::string::npos;
  size_t best_begin = 0;
  for (const std::string& stop : stops_) {
    // A match ends in the new part; it may begin in the held one.
    const size_t from = known >= stop.size() ? known - stop.size() + 1 : 0;
    const size_t begin = pending_.find(stop, from);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_end = end;
      best_begin = begin;
      matched_ = stop;
    }
  }
  if (best_end != std::string::npos) {
    stopped_ = true;
    discarded_ = pending_.size() - best_begin;
    std::string out = pending_.substr(0, best_begin);
    pending_.clear();
    return out;
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, PartialSuffix(pending_, stop));
  std::string out = pending_.substr(0, pending_.size() - keep);
  pending_.erase(0, out.size());
  return out;
}

std::string StopMatcher::Finish() { return std::exchange(pending_, {}); }

}  // namespace strata::gateway
