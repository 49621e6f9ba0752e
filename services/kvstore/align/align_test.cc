// The aligner against a search that looks at everything.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "services/kvstore/align/aligner.h"
#include "services/kvstore/align/test_corpus.h"

namespace strata::kvstore {
namespace {

using Text = std::vector<uint32_t>;
constexpr uint32_t kNewline = 0;

// A line of random words; token 0 ends it.
Text Line(std::mt19937& random, size_t words, uint32_t vocabulary = 1000) {
  Text line(words);
  for (uint32_t& t : line) t = 1 + static_cast<uint32_t>(random() % vocabulary);
  line.push_back(kNewline);
  return line;
}

template <typename Words>
std::vector<Text> Lines(std::mt19937& random, size_t count, Words words,
                        uint32_t vocabulary = 1000) {
  std::vector<Text> lines;
  lines.reserve(count);
  while (lines.size() < count) lines.push_back(Line(random, words(), vocabulary));
  return lines;
}

Text Join(std::span<const Text> lines) {
  Text text;
  for (const Text& line : lines) text.insert(text.end(), line.begin(), line.end());
  return text;
}

std::vector<uint32_t> LineStarts(const Text& text) {
  std::vector<uint32_t> starts = {0};
  for (uint32_t i = 0; i < text.size(); ++i) {
    if (text[i] == kNewline) starts.push_back(i + 1);
  }
  return starts;
}

// What every plan must be, whatever it chooses.
void CheckValid(const TestCorpus& corpus, const Text& prompt, uint32_t known,
                const std::vector<MovedRun>& runs, const AlignOptions& options) {
  const std::vector<uint32_t> starts = LineStarts(prompt);
  const auto on_border = [&](uint32_t p) {
    if (p == known) return true;
    // With a stride the border is the nearest multiple behind (or before) the line's start.
    return std::any_of(starts.begin(), starts.end(), [&](uint32_t s) {
      return p >= s ? p - s < options.stride : s - p < options.stride;
    });
  };
  uint32_t at = known;
  for (const MovedRun& run : runs) {
    EXPECT_GE(run.first_token, at);
    EXPECT_GE(run.tokens, options.min_run);
    EXPECT_TRUE(on_border(run.first_token)) << run.first_token;
    EXPECT_TRUE(on_border(run.first_token + run.tokens));
    EXPECT_EQ(run.first_token % options.stride, 0u);
    EXPECT_EQ(run.old_first_token % options.stride, 0u);
    EXPECT_EQ(run.tokens % options.stride, 0u);
    at = run.first_token + run.tokens;
    ASSERT_LT(at, prompt.size()) << "the last token is read";
    // Its blocks follow each other and hold these tokens.
    Text stored;
    for (size_t i = 0; i < run.blocks.size(); ++i) {
      const auto block = corpus.Find(run.blocks[i]);
      ASSERT_TRUE(block);
      if (i > 0) {
        EXPECT_EQ(block->parent, run.blocks[i - 1]);
      }
      stored.insert(stored.end(), block->tokens.begin(), block->tokens.end());
    }
    const auto first = corpus.Find(run.blocks.front());
    const uint32_t skip = run.old_first_token - first->first_token;
    ASSERT_LT(skip, first->tokens.size());
    ASSERT_LE(skip + run.tokens, stored.size());
    EXPECT_GT(skip + run.tokens + TestCorpus::kBlock, stored.size()) << "no block too many";
    EXPECT_TRUE(
        std::equal(prompt.begin() + run.first_token, prompt.begin() + at, stored.begin() + skip));
  }
}

uint64_t CostOf(const std::vector<MovedRun>& runs, size_t tokens, const AlignOptions& options) {
  uint64_t cost = tokens;
  for (const MovedRun& run : runs) cost = cost - run.tokens + options.run_cost;
  return cost;
}

// The least cost of any choice of whole lines that stand somewhere in one of the conversations.
uint64_t BestCost(const std::vector<Text>& stored, const Text& prompt,
                  const AlignOptions& options) {
  std::vector<uint32_t> borders = LineStarts(prompt);
  while (borders.back() > prompt.size() - 1) borders.pop_back();
  std::vector<uint64_t> cost(borders.size(), 0);
  for (size_t j = 1; j < borders.size(); ++j) {
    cost[j] = cost[j - 1] + borders[j] - borders[j - 1];
    for (size_t i = 0; i < j; ++i) {
      if (borders[j] - borders[i] < options.min_run) break;
      if (cost[i] + options.run_cost >= cost[j]) continue;
      const bool found = std::any_of(stored.begin(), stored.end(), [&](const Text& text) {
        const size_t whole = text.size() / TestCorpus::kBlock * TestCorpus::kBlock;
        return std::search(text.begin(), text.begin() + static_cast<ptrdiff_t>(whole),
                           prompt.begin() + borders[i], prompt.begin() + borders[j]) !=
               text.begin() + static_cast<ptrdiff_t>(whole);
      });
      if (found) cost[j] = cost[i] + options.run_cost;
    }
  }
  return cost.back() + (prompt.size() - borders.back());
}

TEST(SeedIndex, RollingHashesEqualThoseOfTheGrams) {
  std::mt19937 random(8);
  Text text(100);
  for (uint32_t& t : text) t = static_cast<uint32_t>(random());
  const std::vector<uint64_t> hashes = SeedIndex::HashesOf(text);
  ASSERT_EQ(hashes.size(), 100 - SeedIndex::kGram + 1);
  for (size_t i = 0; i < hashes.size(); ++i) {
    EXPECT_EQ(SeedIndex::HashesOf(std::span(text).subspan(i, SeedIndex::kGram))[0], hashes[i]);
  }
  EXPECT_TRUE(SeedIndex::HashesOf(std::span(text).first(SeedIndex::kGram - 1)).empty());
}

TEST(Align, OneChangedLineLeavesTheRest) {
  std::mt19937 random(1);
  std::vector<Text> lines = Lines(random, 60, [] { return 10; });
  TestCorpus corpus;
  corpus.Save(Join(lines));
  lines[20] = Line(random, 13);
  lines.push_back(Line(random, 5));
  const Text prompt = Join(lines);
  const AlignOptions options;
  const auto starts = LineStarts(prompt);
  // The prefix's whole blocks are known; the run after the changed line goes on to the end of what
  // is stored in whole blocks.
  const auto runs = Align(corpus.seeds(), corpus, prompt, 192, starts, options);
  CheckValid(corpus, prompt, 192, runs, options);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first_token, 20u * 11 + 14);
  EXPECT_EQ(runs[0].old_first_token, 21u * 11);
  EXPECT_EQ(runs[0].tokens, 58u * 11 - 21 * 11) << "58 whole lines lie in the ten stored blocks";
}

TEST(Align, NothingMovesWithoutLinesOrWhenShort) {
  std::mt19937 random(2);
  const std::vector<Text> lines = Lines(random, 25, [] { return 11; });
  TestCorpus corpus;
  corpus.Save(Join(lines));
  const Text prompt = Join(std::span(lines).subspan(3, 5));  // 60 tokens
  EXPECT_TRUE(Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), {}).empty());
  const Text longer = Join(std::span(lines).subspan(3, 12));
  EXPECT_EQ(Align(corpus.seeds(), corpus, longer, 0, LineStarts(longer), {}).size(), 1u);
  EXPECT_TRUE(Align(corpus.seeds(), corpus, longer, 0, {}, {}).empty());
  EXPECT_TRUE(Align(corpus.seeds(), corpus, {}, 0, LineStarts(longer), {}).empty());
}

TEST(Align, NothingMovesWhenAllOfItIsLittle) {
  std::mt19937 random(6);
  std::vector<Text> lines = Lines(random, 40, [] { return 15; });
  TestCorpus corpus;
  corpus.Save(Join(lines));
  lines[8] = Line(random, 20);  // two runs: 128 tokens before it, most of the rest behind it
  const Text prompt = Join(std::span(lines).first(20));
  const auto move = [&](uint32_t min_moved) {
    uint32_t moved = 0;
    for (const MovedRun& run :
         Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), {.min_moved = min_moved})) {
      moved += run.tokens;
    }
    return moved;
  };
  const uint32_t all = move(0);
  EXPECT_GT(all, 250u);
  EXPECT_EQ(move(all), all);
  EXPECT_EQ(move(all + 1), 0u);
}

TEST(Align, TheLastTokenIsRead) {
  std::mt19937 random(3);
  const std::vector<Text> lines = Lines(random, 40, [] { return 15; });
  TestCorpus corpus;
  const Text text = Join(lines);
  corpus.Save(text);
  const Text prompt(text.begin() + 32, text.begin() + 32 + 256);  // ends with a whole line
  const auto runs = Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), {});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].tokens, 240u) << "the last line is read, so that its last token is";
}

// Random conversations that share lines, random edits of them: valid always, and nearly as good as
// a search through everything.
TEST(Align, IsValidAndNearlyOptimalOnRandomEdits) {
  std::mt19937 random(4);
  AlignOptions options;
  uint64_t all = 0;
  uint64_t all_best = 0;
  for (int round = 0; round < 60; ++round) {
    const std::vector<Text> pool = Lines(random, 40, [&] { return 1 + random() % 25; });
    const auto conversation = [&] {
      std::vector<Text> lines(pool);
      for (int edit = 0; edit < 4; ++edit) {
        const size_t a = random() % lines.size();
        const size_t b = random() % lines.size();
        switch (random() % 3) {
          case 0:
            lines[a] = Line(random, 1 + random() % 20);
            break;
          case 1:
            lines.erase(lines.begin() + static_cast<ptrdiff_t>(a));
            break;
          default:
            std::rotate(lines.begin() + static_cast<ptrdiff_t>(std::min(a, b)),
                        lines.begin() + static_cast<ptrdiff_t>(std::max(a, b)), lines.end());
        }
      }
      return Join(lines);
    };
    TestCorpus corpus;
    std::vector<Text> stored;
    for (int i = 0; i < 3; ++i) {
      stored.push_back(conversation());
      corpus.Save(stored.back());
    }
    const Text prompt = conversation();
    options.run_cost = random() % 40;
    const auto runs = Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), options);
    CheckValid(corpus, prompt, 0, runs, options);
    const uint64_t cost = CostOf(runs, prompt.size(), options);
    const uint64_t best = BestCost(stored, prompt, options);
    EXPECT_GE(cost, best);
    EXPECT_LE(cost, best + 2 * SeedIndex::kGram * (runs.size() + 1)) << "round " << round;
    all += cost;
    all_best += best;
  }
  EXPECT_LE(static_cast<double>(all), 1.05 * static_cast<double>(all_best));
}

TEST(Align, KeepsToStrides) {
  std::mt19937 random(5);
  AlignOptions options;
  options.stride = 4;
  size_t moved = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<Text> lines = Lines(random, 40, [&] { return 1 + random() % 20; });
    TestCorpus corpus;
    corpus.Save(Join(lines));
    lines[10] = Line(random, 1 + random() % 20);
    const Text prompt = Join(lines);
    const auto runs = Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), options);
    CheckValid(corpus, prompt, 0, runs, options);
    moved += runs.size() > 1;
  }
  EXPECT_GT(moved, 0u) << "shifts that are multiples of the stride occur";
}

// Text of very few different tokens has equal grams everywhere.
TEST(Align, RepetitiveTextTerminatesAndIsValid) {
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    const auto text = [&] {
      return Join(Lines(
          random, 100, [&] { return random() % 8; }, 2));
    };
    TestCorpus corpus;
    for (int i = 0; i < 5; ++i) corpus.Save(text());
    corpus.Save(Text(640, 7));
    Text prompt = text();
    prompt.insert(prompt.end(), 300, 7);
    const auto runs = Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), {});
    CheckValid(corpus, prompt, 0, runs, {});
  }
}

TEST(Align, WhatWasRemovedIsNotFound) {
  std::mt19937 random(7);
  const std::vector<Text> lines = Lines(random, 40, [] { return 15; });
  const Text text = Join(lines);
  TestCorpus corpus;
  corpus.Save(text);
  const Text prompt(text.begin() + 16, text.end());
  while (corpus.size() > 0) {
    const auto runs = Align(corpus.seeds(), corpus, prompt, 0, LineStarts(prompt), {});
    CheckValid(corpus, prompt, 0, runs, {});
    EXPECT_EQ(runs.size(), corpus.size() >= 2 ? 1u : 0u);
    corpus.DropLast(text);
  }
  EXPECT_EQ(corpus.seeds().grams(), 0u);
}

}  // namespace
}  // namespace strata::kvstore
