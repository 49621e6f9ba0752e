#include "common/tokenizer/special_matcher.h"

#include <algorithm>
#include <map>

namespace strata::tokenizer {

SpecialMatcher::SpecialMatcher(const TokenTable& tokens) : terminal_{kNone} {
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    const bool control = tokens.IsControl(id);
    if (control || (tokens.flags(id) & kFlagUserDefined) != 0) specials_.push_back({id, control});
  }
  std::stable_sort(specials_.begin(), specials_.end(), [&](const Special& a, const Special& b) {
    return tokens.Text(a.id).size() > tokens.Text(b.id).size();
  });
  for (uint32_t priority = 0; priority < specials_.size(); ++priority) {
    Insert(tokens.Text(specials_[priority].id), priority);
  }
}

void SpecialMatcher::Insert(std::string_view text, uint32_t priority) {
  starts_[static_cast<uint8_t>(text[0])] = true;
  uint64_t node = 0;
  for (const char c : text) {
    const auto [edge, is_new] = edges_.try_emplace(node << 8 | static_cast<uint8_t>(c),
                                                   static_cast<uint32_t>(terminal_.size()));
    if (is_new) terminal_.push_back(kNone);
    node = edge->second;
  }
  terminal_[node] = priority;
}

std::vector<SpecialMatch> SpecialMatcher::Find(std::string_view text,
                                               std::span<const TextRange> control_ranges) const {
  std::vector<Candidate> candidates;
  const auto* range = control_ranges.data();
  const auto* const ranges_end = range + control_ranges.size();
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    while (range != ranges_end && range->end <= begin) ++range;
    const bool in_range = range != ranges_end && range->begin <= begin;
    const size_t control_end = in_range ? range->end : begin;
    uint64_t node = 0;
    for (size_t end = begin; end < text.size(); ++end) {
      const auto edge = edges_.find(node << 8 | static_cast<uint8_t>(text[end]));
      if (edge == edges_.end()) break;
      node = edge->second;
      const uint32_t priority = terminal_[node];
      if (priority == kNone || (specials_[priority].control && end >= control_end)) continue;
      candidates.push_back({priority, specials_[priority].id, begin, end + 1 - begin});
    }
  }
  return Resolve(std::move(candidates));
}

std::vector<SpecialMatch> SpecialMatcher::Resolve(std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.begin < b.begin;
  });
  std::map<size_t, SpecialMatch> taken;  // by begin
  for (const Candidate& c : candidates) {
    const auto next = taken.lower_bound(c.begin);
    if (next != taken.end() && next->first < c.begin + c.length) continue;
    if (next != taken.begin()) {
      const SpecialMatch& previous = std::prev(next)->second;
      if (previous.begin + previous.length > c.begin) continue;
    }
    taken.emplace_hint(next, c.begin, SpecialMatch{c.begin, c.length, c.id});
  }
  std::vector<SpecialMatch> matches;
  matches.reserve(taken.size());
  for (const auto& [begin, match] : taken) matches.push_back(match);
  return matches;
}

}  // namespace strata::tokenizer
