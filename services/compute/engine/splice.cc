#include "services/compute/engine/splice.h"

#include <algorithm>
#include <numeric>

namespace strata::compute {
namespace {

// Tokens at a run's start that are read again before any deviation counts.
constexpr int kHeadTokens = 8;

}  // namespace

absl::StatusOr<std::vector<MovedRows>> MovedRowsOf(const v1::RestorePlan& plan, int prompt_tokens,
                                                   int block_tokens) {
  std::vector<MovedRows> pieces;
  int64_t end = plan.reused_tokens();
  for (const v1::MovedRun& run : plan.runs()) {
    const int64_t first = run.first_token();
    const int64_t old_first = run.old_first_token();
    const int64_t old_last = old_first + run.tokens();
    const auto bad = [&](std::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("the moved run of ", run.tokens(), " tokens at ", first, " (from ",
                       old_first, ") ", absl::string_view(what.data(), what.size())));
    };
    if (first < end || run.tokens() == 0) return bad("overlaps what is before it");
    if (old_last > INT32_MAX) return bad("comes from too far");
    end = first + run.tokens();
    if (end >= prompt_tokens) {
      return bad(absl::StrCat("reaches the last of ", prompt_tokens, " tokens"));
    }
    int64_t at = old_first;
    for (const v1::BlockRef& block : run.blocks()) {
      const int64_t begin = block.first_token();
      if (block.tokens() != static_cast<uint32_t>(block_tokens) || begin > at ||
          begin + block_tokens <= at || (at > old_first && begin != at) || at >= old_last) {
        return bad(absl::StrCat("is not made of the block at ", begin));
      }
      const int64_t last = std::min(begin + block_tokens, old_last);
      pieces.push_back({static_cast<int>(at - begin), static_cast<int>(last - at),
                        static_cast<int>(first + at - old_first),
                        static_cast<int>(first - old_first)});
      at = last;
    }
    if (at != old_last) return bad("is longer than its blocks");
  }
  return pieces;
}

void AppendRange(std::vector<TokenRange>& ranges, TokenRange range) {
  if (!ranges.empty() && ranges.back().last == range.first) {
    ranges.back().last = range.last;
  } else {
    ranges.push_back(range);
  }
}

int TokensIn(std::span<const TokenRange> ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), 0,
                         [](int n, const TokenRange& r) { return n + r.last - r.first; });
}

std::vector<int32_t> ChooseAgain(std::span<const TokenRange> moved,
                                 std::span<const float> deviations, double budget) {
  struct Candidate {
    bool head;
    float deviation;
    int32_t position;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(deviations.size());
  for (const TokenRange& range : moved) {
    for (int p = range.first; p < range.last; ++p) {
      candidates.push_back({p - range.first < kHeadTokens, deviations[candidates.size()], p});
    }
  }
  const auto count = std::min(candidates.size(),
                              static_cast<size_t>(budget * static_cast<double>(candidates.size())));
  const auto before = [](const Candidate& a, const Candidate& b) {
    if (a.head != b.head) return a.head;
    if (a.deviation != b.deviation) return a.deviation > b.deviation;
    return a.position < b.position;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count),
                    candidates.end(), before);
  std::vector<int32_t> again;
  again.reserve(count);
  for (size_t i = 0; i < count; ++i) again.push_back(candidates[i].position);
  std::sort(again.begin(), again.end());
  return again;
}

std::vector<int32_t> PositionsToRead(int known, int prompt_tokens,
                                     std::span<const TokenRange> moved,
                                     std::span<const int32_t> again) {
  std::vector<int32_t> positions;
  auto next_again = again.begin();
  int at = known;
  for (const TokenRange& range : moved) {
    for (; at < range.first; ++at) positions.push_back(at);
    for (; next_again != again.end() && *next_again < range.last; ++next_again) {
      positions.push_back(*next_again);
    }
    at = range.last;
  }
  for (; at < prompt_tokens; ++at) positions.push_back(at);
  return positions;
}

}  // namespace strata::compute
