// How far answers behind a splice are from those behind a full read: the edits that are tried and
// the figures that are reported. No daemons, no models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::cli {

// A prompt that differs from `text` as agents' prompts differ between sessions.
struct EditedText {
  std::string name;
  std::string text;
};

// One of each kind: a line inserted, deleted, replaced (all within the first quarter, so that most
// of the text follows), a section moved to the end, three words of different lines changed. The
// text needs at least 8 lines.
std::vector<EditedText> EditsOf(std::string_view text);

struct Difference {
  size_t positions = 0;
  double mean_kl = 0;           // of the second from the first distribution, in nats
  double p99_kl = 0;            // of the position at that rank
  double same_top = 0;          // share of positions with the same most likely token
  double perplexity_ratio = 1;  // of the second to the first, on the text's next tokens
};

// Log-probabilities [positions][vocabulary] of both; next[i] is the token that follows position i.
Difference Compare(std::span<const float> expected, std::span<const float> actual,
                   std::span<const uint32_t> next);

}  // namespace strata::cli
