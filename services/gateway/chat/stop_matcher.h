// Finds stop strings in streamed text, wherever the pieces are cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::gateway {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  // Appends text and returns what can be shown: everything that cannot be the beginning of a stop
  // string. After a match nothing more is returned. The concatenated output is the same for every
  // way of cutting the input.
  std::string Push(std::string_view text);
  // The end of the text: what was held back after all.
  std::string Finish();

  bool stopped() const { return stopped_; }
  // The stop string that matched: at the earliest end, of these the longest.
  const std::string& matched() const { return matched_; }
  size_t held() const { return pending_.size(); }
  // Bytes of Push's last text and of held text that the match removed.
  size_t discarded() const { return discarded_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;  // the longest suffix that a stop string starts with
  std::string matched_;
  size_t discarded_ = 0;
  bool stopped_ = false;
};

// Length of the longest proper prefix of `word` that `text` ends with.
size_t PartialSuffix(std::string_view text, std::string_view word);

}  // namespace strata::gateway
