#include "cli/splice_eval.h"

#include <algorithm>
#include <cmath>

namespace strata::cli {
namespace {

std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace

std::vector<EditedText> EditsOf(std::string_view text) {
  const std::vector<std::string> lines = LinesOf(text);
  const auto at = static_cast<ptrdiff_t>(lines.size() / 8);
  std::vector<EditedText> edits;
  std::vector<std::string> edited = lines;
  edited.insert(edited.begin() + at,
                "Note: the build of this morning failed in the second step.\n");
  edits.push_back({"insert a line", Join(edited)});
  edited = lines;
  edited.erase(edited.begin() + at);
  edits.push_back({"delete a line", Join(edited)});
  edited = lines;
  edited[static_cast<size_t>(at)] = "Today is Sunday, the 29th of November; 3 files are changed.\n";
  edits.push_back({"replace a line", Join(edited)});
  edited = lines;
  std::rotate(edited.begin() + at, edited.begin() + 3 * at, edited.end());
  edits.push_back({"move a section", Join(edited)});
  edited = lines;
  for (const ptrdiff_t line : {at, 2 * at, 3 * at}) {
    std::string& changed = edited[static_cast<size_t>(line)];
    changed.insert(std::min(changed.find(' '), changed.size() - 1), " /home/b7f3a1/work");
  }
  edits.push_back({"change three words", Join(edited)});
  return edits;
}

Difference Compare(std::span<const float> expected, std::span<const float> actual,
                   std::span<const uint32_t> next) {
  Difference difference;
  difference.positions = next.size();
  if (next.empty()) return difference;
  const size_t vocabulary = expected.size() / next.size();
  std::vector<double> kl;
  double loss = 0;
  for (size_t i = 0; i < next.size(); ++i) {
    const auto p = expected.subspan(i * vocabulary, vocabulary);
    const auto q = actual.subspan(i * vocabulary, vocabulary);
    double sum = 0;
    for (size_t t = 0; t < vocabulary; ++t) {
      sum += std::exp(double{p[t]}) * (double{p[t]} - double{q[t]});
    }
    kl.push_back(std::max(sum, 0.0));
    difference.mean_kl += kl.back() / static_cast<double>(next.size());
    const auto top = [](std::span<const float> row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    difference.same_top += top(p) == top(q) ? 1.0 / static_cast<double>(next.size()) : 0;
    loss += double{p[next[i]]} - double{q[next[i]]};
  }
  std::sort(kl.begin(), kl.end());
  difference.p99_kl = kl[std::min(kl.size() - 1, kl.size() * 99 / 100)];
  difference.perplexity_ratio = std::exp(loss / static_cast<double>(next.size()));
  return difference;
}

}  // namespace strata::cli
