#include "services/kvstore/align/aligner.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

namespace strata::kvstore {
namespace {

constexpr uint32_t kGram = SeedIndex::kGram;
// A match this long is taken without looking at the other copies of its text: what one of them has
// more is found where this one ends.
constexpr uint32_t kLongEnough = 1024;
// Copies that reach no further than those before: probably it is the prompt that is new there. What
// another copy has more is found where these end.
constexpr int kAlike = 2;
// Copies that end no later than a match without a run, before it is taken for certain that it is
// the prompt that is new there.
constexpr int kNoFurther = 8;

// prompt[first, last) equals stored text. Backwards that text is unique (every block has one
// parent), so its end says where all of it lies.
struct Match {
  uint32_t first = 0;
  uint32_t last = 0;
  BlockId end_block;        // holds the match's last token
  uint32_t end_offset = 0;  // tokens of end_block up to the match's end
  uint32_t old_last = 0;    // position of the match's end in its conversation
  int64_t shift() const { return int64_t{last} - int64_t{old_last}; }
};

class Finder {
 public:
  Finder(const SeedIndex& seeds, const Corpus& corpus, std::span<const uint32_t> prompt,
         uint32_t known, std::span<const uint32_t> line_starts, const AlignOptions& options)
      : seeds_(seeds),
        corpus_(corpus),
        prompt_(prompt),
        known_(known),
        line_starts_(line_starts),
        options_(options),
        hashes_(SeedIndex::HashesOf(prompt.subspan(known))) {}

  // Sorted by their ends.
  std::vector<Match> Run() {
    std::vector<Match> matches;
    uint32_t covered = known_;  // end of the furthest match
    int no_further = 0;         // copies since then that end no later
    for (uint32_t at = known_; at - known_ < hashes_.size();) {
      const Candidates found = Look(at, covered);
      no_further += found.no_further;
      if (!found.furthest) {
        ++at;
        if (no_further >= kNoFurther) at = std::max(at, covered - std::min(covered, kGram - 1));
        continue;
      }
      no_further = 0;
      if (found.earliest->first < found.furthest->first) matches.push_back(*found.earliest);
      matches.push_back(*found.furthest);
      covered = found.furthest->last;
      // A match that begins inside this one and ends kGram or more behind it has a gram that covers
      // this one's end. Where the prompt itself is new there, no gram fits and nothing is wasted.
      // A match that ends sooner may hold a run where this one holds none: then it is worth looking
      // further back.
      const uint32_t back = HoldsRun(*found.furthest) ? kGram : 2 * kGram;
      at = std::max(at + 1, covered < back ? 0 : covered - back + 1);
    }
    return matches;
  }

 private:
  // Of the matches through one gram: none is longer than these two in its direction.
  struct Candidates {
    std::optional<Match> furthest;
    std::optional<Match> earliest;
    int no_further = 0;  // matches that end within what was covered
  };

  bool HoldsRun(const Match& match) const {
    const auto first = std::lower_bound(line_starts_.begin(), line_starts_.end(), match.first);
    const auto behind = std::upper_bound(first, line_starts_.end(), match.last);
    // Where runs keep to strides, up to one is lost at either end.
    return behind - first > 1 &&
           behind[-1] - *first >= options_.min_run + 2 * (options_.stride - 1);
  }

  // Among the matches through the gram at `at` that end behind `covered`. Between equals the one
  // that moves least counts: rows turned by a small angle lose least.
  Candidates Look(uint32_t at, uint32_t covered) const {
    Candidates found;
    int alike = 0;  // places in a row that changed nothing
    const auto less = [](const Match& a, const Match& b) {
      return std::abs(a.shift()) < std::abs(b.shift());
    };
    const std::span<const SeedIndex::Place> places = seeds_.Find(hashes_[at - known_]);
    for (auto place = places.rbegin(); place != places.rend(); ++place) {  // the newest first
      Match match = ExtendForwards(at, *place);
      if (match.last < at + kGram) continue;
      if (match.last <= covered) {
        ++found.no_further;
        continue;
      }
      match.first = ExtendBackwards(at, *place);
      std::optional<Match>& far = found.furthest;
      std::optional<Match>& early = found.earliest;
      const bool longer = !far || match.last > far->last || match.first < early->first;
      if (!far || match.last > far->last || (match.last == far->last && less(match, *far))) {
        far = match;
      }
      if (!early || match.first < early->first) early = match;
      alike = longer ? 0 : alike + 1;
      if (match.last - at >= kLongEnough || alike == kAlike) break;
    }
    return found;
  }

  Match ExtendForwards(uint32_t at, const SeedIndex::Place& place) const {
    Match match{at, at, place.block, place.offset, 0};
    std::optional<CorpusBlock> block = corpus_.Find(place.block);
    if (!block || place.offset > block->tokens.size()) return match;
    match.old_last = block->first_token + place.offset;
    uint32_t same = Common(block->tokens.subspan(place.offset), match.last);
    for (;;) {
      match.last += same;
      match.end_offset += same;
      match.old_last += same;
      if (match.end_offset < block->tokens.size()) return match;
      // Of all continuations at most one goes on beyond its block.
      same = 0;
      BlockId following;
      for (const BlockId& child : corpus_.Children(match.end_block)) {
        const std::optional<CorpusBlock> next = corpus_.Find(child);
        if (!next) continue;
        const uint32_t length = Common(next->tokens, match.last);
        if (length <= same) continue;
        same = length;
        block = next;
        following = child;
      }
      if (same == 0) return match;
      match.end_block = following;
      match.end_offset = 0;
    }
  }

  uint32_t ExtendBackwards(uint32_t at, const SeedIndex::Place& place) const {
    std::optional<CorpusBlock> block = corpus_.Find(place.block);
    uint32_t offset = place.offset;
    while (at > known_) {
      if (offset == 0) {
        block = corpus_.Find(block->parent);
        if (!block) break;
        offset = static_cast<uint32_t>(block->tokens.size());
        continue;
      }
      if (block->tokens[offset - 1] != prompt_[at - 1]) break;
      --offset;
      --at;
    }
    return at;
  }

  uint32_t Common(std::span<const uint32_t> stored, uint32_t at) const {
    const std::span<const uint32_t> rest = prompt_.subspan(at);
    const auto differs = std::mismatch(stored.begin(), stored.end(), rest.begin(), rest.end());
    return static_cast<uint32_t>(differs.first - stored.begin());
  }

  const SeedIndex& seeds_;
  const Corpus& corpus_;
  const std::span<const uint32_t> prompt_;
  const uint32_t known_;
  const std::span<const uint32_t> line_starts_;
  const AlignOptions& options_;
  const std::vector<uint64_t> hashes_;  // of the grams from known_ on
};

// The run that moves prompt[first, last) of a match.
MovedRun TakeRun(const Corpus& corpus, const Match& match, uint32_t first, uint32_t last) {
  MovedRun run;
  run.first_token = first;
  run.tokens = last - first;
  run.old_first_token = static_cast<uint32_t>(int64_t{first} - match.shift());
  const uint32_t old_last = run.old_first_token + run.tokens;
  BlockId id = match.end_block;
  for (;;) {
    const CorpusBlock block = *corpus.Find(id);
    if (block.first_token < old_last) run.blocks.push_back(id);
    if (block.first_token <= run.old_first_token) break;
    id = block.parent;
  }
  std::reverse(run.blocks.begin(), run.blocks.end());
  return run;
}

// The shortest path over line borders.
class Chooser {
 public:
  Chooser(std::span<const Match> matches, uint32_t known, uint32_t limit,
          std::span<const uint32_t> line_starts, const AlignOptions& options)
      : matches_(matches), options_(options) {
    borders_.push_back(known);
    for (const uint32_t p : line_starts) {
      if (p > borders_.back() && p <= limit) borders_.push_back(p);
    }
  }

  // Calls use(match, first, last) for the chosen runs in order.
  template <typename Use>
  void Run(Use use) {
    std::vector<Step> steps(borders_.size());
    std::vector<Reach> reach(matches_.size());
    std::vector<size_t> by_first(matches_.size());
    std::iota(by_first.begin(), by_first.end(), size_t{0});
    std::sort(by_first.begin(), by_first.end(), [&](size_t a, size_t b) {
      return std::pair(matches_[a].first, a) < std::pair(matches_[b].first, b);
    });
    auto next = by_first.begin();
    std::vector<size_t> open;  // the matches around the border, ascending
    for (size_t j = 1; j < borders_.size(); ++j) {
      steps[j] = {steps[j - 1].cost + borders_[j] - borders_[j - 1], j - 1, nullptr};
      std::erase_if(open, [&](size_t m) { return matches_[m].last < borders_[j]; });
      for (; next != by_first.end() && matches_[*next].first < borders_[j]; ++next) {
        if (matches_[*next].last < borders_[j]) continue;
        open.insert(std::lower_bound(open.begin(), open.end(), *next), *next);
      }
      for (const size_t m : open) {
        const Match& match = matches_[m];
        Advance(match, j, steps, reach[m]);
        if (!reach[m].any) continue;
        const uint64_t tail = borders_[j] - Down(borders_[j]);
        const uint64_t cost = reach[m].cost + options_.run_cost + tail;
        if (cost < steps[j].cost) steps[j] = {cost, reach[m].best, &match};
      }
    }
    std::vector<size_t> path;
    for (size_t j = borders_.size() - 1; j > 0; j = steps[j].from) path.push_back(j);
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      const Step& step = steps[*it];
      if (step.match != nullptr) use(*step.match, Up(borders_[step.from]), Down(borders_[*it]));
    }
  }

 private:
  struct Step {
    uint64_t cost = 0;
    size_t from = 0;
    const Match* match = nullptr;  // how [from, here) is had; null = read
  };
  // Of one match: the cheapest border so far at which a run to here may begin.
  struct Reach {
    size_t next = 0;  // borders before this one were looked at
    bool any = false;
    size_t best = 0;
    uint64_t cost = 0;
  };

  uint32_t Up(uint32_t p) const {
    return (p + options_.stride - 1) / options_.stride * options_.stride;
  }
  uint32_t Down(uint32_t p) const { return p / options_.stride * options_.stride; }

  void Advance(const Match& match, size_t j, const std::vector<Step>& steps, Reach& reach) const {
    if (match.shift() % int64_t{options_.stride} != 0) return;
    const uint32_t end = Down(borders_[j]);
    if (reach.next == 0) {
      reach.next = static_cast<size_t>(
          std::lower_bound(borders_.begin(), borders_.end(), match.first) - borders_.begin());
    }
    for (; reach.next < j && Up(borders_[reach.next]) + options_.min_run <= end; ++reach.next) {
      const uint64_t cost =
          steps[reach.next].cost + Up(borders_[reach.next]) - borders_[reach.next];
      if (reach.any && cost >= reach.cost) continue;
      reach.any = true;
      reach.best = reach.next;
      reach.cost = cost;
    }
  }

  const std::span<const Match> matches_;
  const AlignOptions options_;
  std::vector<uint32_t> borders_;
};

}  // namespace

std::vector<MovedRun> Align(const SeedIndex& seeds, const Corpus& corpus,
                            std::span<const uint32_t> prompt, uint32_t known,
                            std::span<const uint32_t> line_starts, const AlignOptions& options) {
  std::vector<MovedRun> runs;
  if (line_starts.empty() || prompt.empty()) return runs;
  const std::vector<Match> matches =
      Finder(seeds, corpus, prompt, known, line_starts, options).Run();
  if (matches.empty()) return runs;
  const auto limit = static_cast<uint32_t>(prompt.size() - 1);
  uint64_t moved = 0;
  Chooser(matches, known, limit, line_starts, options)
      .Run([&](const Match& match, uint32_t first, uint32_t last) {
        runs.push_back(TakeRun(corpus, match, first, last));
        moved += runs.back().tokens;
      });
  if (moved < options.min_moved) runs.clear();
  return runs;
}

}  // namespace strata::kvstore
