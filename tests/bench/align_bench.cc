// Time of a splice plan: a prompt of 100,000 tokens against 1,000 stored conversations.
//
// Conversations share most lines of their beginnings, as sessions of one agent do: a few changed
// lines (date, folder, status), then text of their own. The prompt is one more session, or text
// that stands nowhere.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

#include "services/kvstore/align/test_corpus.h"
#include "tests/bench/speed.h"

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"

ABSL_FLAG(int, conversations, 1000, "stored conversations");
ABSL_FLAG(int, stored_tokens, 16000, "tokens of each");
ABSL_FLAG(int, prompt_tokens, 100000, "tokens of the prompt");
ABSL_FLAG(int, changed_lines, 20, "lines of the shared text that differ in each session");
ABSL_FLAG(int, passes, 9, "plans; median and slowest are printed");

namespace strata::bench {
namespace {

using kvstore::TestCorpus;
using Text = std::vector<uint32_t>;

class Author {
 public:
  void Write(Text& text, std::vector<uint32_t>& line_starts, size_t tokens) {
    while (text.size() < tokens) {
      for (size_t words = 2 + random_() % 20; words > 0; --words) {
        text.push_back(1 + static_cast<uint32_t>(random_() % 50'000));
      }
      text.push_back(0);
      line_starts.push_back(static_cast<uint32_t>(text.size()));
    }
  }
  // A word is put into `lines` lines, so that all that follows moves.
  Text Change(const Text& text, size_t lines) {
    Text changed = text;
    for (size_t i = 0; i < lines; ++i) {
      const auto at = static_cast<ptrdiff_t>(random_() % changed.size());
      changed.insert(changed.begin() + at, 1 + static_cast<uint32_t>(random_() % 50'000));
    }
    return changed;
  }

 private:
  std::mt19937 random_{42};
};

// What this thread has used: on a busy machine most of the time passes elsewhere.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<uint32_t> LineStarts(const Text& text) {
  std::vector<uint32_t> starts;
  for (uint32_t i = 0; i < text.size(); ++i) {
    if (text[i] == 0) starts.push_back(i + 1);
  }
  return starts;
}

void Measure(const char* name, const TestCorpus& corpus, const Text& prompt) {
  const std::vector<uint32_t> starts = LineStarts(prompt);
  std::vector<double> ms;
  std::vector<double> cpu_ms;
  size_t runs = 0;
  size_t moved = 0;
  for (int pass = 0; pass < absl::GetFlag(FLAGS_passes); ++pass) {
    const Stopwatch watch;
    const double cpu = CpuSeconds();
    const auto plan = kvstore::Align(corpus.seeds(), corpus, prompt, 0, starts, {});
    cpu_ms.push_back((CpuSeconds() - cpu) * 1e3);
    ms.push_back(watch.Seconds() * 1e3);
    runs = plan.size();
    moved = 0;
    for (const kvstore::MovedRun& run : plan) moved += run.tokens;
  }
  std::printf(
      "%-22s %7zu tokens, %4zu runs move %6zu: %6.2f ms (%6.2f of a processor), at most %6.2f\n",
      name, prompt.size(), runs, moved, Median(ms), Median(cpu_ms),
      *std::max_element(ms.begin(), ms.end()));
}

void Run() {
  const auto stored = static_cast<size_t>(absl::GetFlag(FLAGS_stored_tokens));
  const auto length = static_cast<size_t>(absl::GetFlag(FLAGS_prompt_tokens));
  const auto changes = static_cast<size_t>(absl::GetFlag(FLAGS_changed_lines));
  Author author;
  Text shared;
  std::vector<uint32_t> unused;
  author.Write(shared, unused, length);
  TestCorpus corpus;
  for (int i = 0; i < absl::GetFlag(FLAGS_conversations); ++i) {
    // Half of a session is shared text from somewhere in it, half its own. One holds all of it.
    const size_t begin = i == 0 ? 0 : static_cast<size_t>(i) * 7919 % (length - stored / 2);
    const size_t count = i == 0 ? length : stored / 2;
    Text text(shared.begin() + static_cast<ptrdiff_t>(begin),
              shared.begin() + static_cast<ptrdiff_t>(begin + count));
    text = author.Change(text, changes);
    author.Write(text, unused, text.size() + stored / 2);
    corpus.Save(text);
  }
  std::printf("%zu blocks of 64 tokens stored, %zu grams\n", corpus.size(), corpus.seeds().grams());
  Measure("a session, edited", corpus, author.Change(shared, changes));
  Measure("edited at 1,000 places", corpus, author.Change(shared, 1000));
  Text fresh;
  author.Write(fresh, unused, length);
  Measure("text never seen", corpus, fresh);
  Measure("one token repeated", corpus, Text(length, 0));
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  strata::bench::Run();
  return 0;
}
