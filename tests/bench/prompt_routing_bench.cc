// What prompt routing costs in quality and saves in reads.
//
//   prompt_routing_bench --model=FILE --text=FILE [--percent=25] [--prompt=512] [--texts=8]
//
// Special tokens written out in the text count as such, so it may be a file of chats. Reads pieces
// of it as prompts with each rule, then 64 tokens that follow with normal routing, all on an arena
// of `percent` of the experts that was filled by reading other pieces. Prints, against FULL: the
// divergence KL(FULL || rule) of the distributions at these 64 positions (nats), how often the most
// likely token is the same, perplexity of the 64 tokens, bytes read for the prompt.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "common/tokenizer/tokenizer.h"
#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/compute/models/registry.h"
#include "services/expertstore/plane/data_plane.h"
#include "tests/bench/bench_main.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, model, "deploy/demo/strata-demo.gguf", "GGUF file.");
ABSL_FLAG(std::string, text, "README.md", "Text file.");
ABSL_FLAG(uint32_t, percent, 25, "Of the experts that the arena holds.");
ABSL_FLAG(uint32_t, prompt, 512, "Tokens of a prompt.");
ABSL_FLAG(uint32_t, texts, 8, "Pieces of text.");

namespace strata::compute {
namespace {

constexpr uint32_t kAfter = 64;

// A store in this process, on a thread of its own.
class Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Start(const gguf::Model& file, uint32_t used) {
    auto store = std::unique_ptr<Store>(new Store);
    expertstore::DataPlaneOptions& options = store->options;
    STRATA_ASSIGN_OR_RETURN(options.geometry, gguf::ReadExpertGeometry(file));
    const auto hash = file.Fingerprint();
    std::memcpy(options.fingerprint.data(), hash.data(), options.fingerprint.size());
    options.experts_per_token = used;
    STRATA_ASSIGN_OR_RETURN(const expertstore::SlotPlan all,
                            expertstore::PlanSlots(options.geometry, 1ull << 60, used));
    options.arena_bytes = all.all_bytes * absl::GetFlag(FLAGS_percent) / 100;
    options.attach_path = absl::StrCat("/tmp/prompt_routing_bench.", getpid(), ".sock");
    STRATA_ASSIGN_OR_RETURN(store->plane, expertstore::DataPlane::Create(options));
    store->thread = std::thread([&plane = *store->plane] { plane.Run(); });
    return store;
  }
  ~Store() {
    if (plane == nullptr) return;
    plane->Stop();
    thread.join();
  }
  expertstore::DataPlaneOptions options;
  std::unique_ptr<expertstore::DataPlane> plane;
  std::thread thread;

 private:
  Store() = default;
};

class Reader {
 public:
  Reader(Backend& backend, Model& model, ExpertSource& experts, std::unique_ptr<KvCache> kv,
         std::unique_ptr<Buffer> memory, std::unique_ptr<Buffer> logits)
      : backend_(backend),
        model_(model),
        experts_(experts),
        kv_(std::move(kv)),
        memory_(std::move(memory)),
        logits_(std::move(logits)) {
    kv_->Take(kv_->pages(), pages_);
  }

  // Runs `tokens` at `first`: as a prompt, or with a null rule as if they had been generated.
  // Returns the logits of the last kAfter of them.
  absl::StatusOr<std::vector<float>> Run(std::span<const uint32_t> tokens, int first,
                                         const RoutingRule* rule) {
    const auto rows = static_cast<int>(tokens.size());
    std::vector<int32_t> ids(tokens.begin(), tokens.end());
    std::vector<int32_t> positions, slots, all, sequence(tokens.size(), 0);
    for (int i = 0; i < rows; ++i) {
      const int at = first + i;
      all.push_back(i);
      positions.push_back(at);
      slots.push_back(pages_[static_cast<size_t>(at / KvCache::kPageTokens)] *
                          KvCache::kPageTokens +
                      at % KvCache::kPageTokens);
    }
    const std::span<const int32_t> table(pages_);
    Scratch scratch(std::span(memory_->data(), memory_->size()));
    Step step{.backend = backend_,
              .experts = &experts_,
              .kv = *kv_,
              .scratch = scratch,
              .priority = rule != nullptr ? ExpertPriority::kPrompt : ExpertPriority::kDecode,
              .tokens = ids,
              .positions = positions,
              .slots = slots,
              .attention = {sequence, positions, std::span(&table, 1)},
              .first_prompt_row = rule != nullptr ? 0 : rows,
              .prompt_rule = rule != nullptr ? *rule : RoutingRule(),
              .tally = {},
              .unmet = {},
              .look_ahead = false,
              .x = {},
              .cos_sin = {}};
    STRATA_RETURN_IF_ERROR(model_.Forward(step));
    tally.Add(step.tally);
    const int64_t vocab = model_.info().vocab_size;
    const int count = std::min<int>(rows, kAfter);
    model_.Logits(step, std::span(all).last(static_cast<size_t>(count)),
                  Tensor{TensorType::kF32, count, vocab, static_cast<size_t>(vocab) * sizeof(float),
                         logits_->data()});
    std::vector<float> host(static_cast<size_t>(count * vocab));
    backend_.CopyToHost(std::as_writable_bytes(std::span(host)), logits_->data());
    return host;
  }
  RoutingTally tally;

 private:
  Backend& backend_;
  Model& model_;
  ExpertSource& experts_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Buffer> memory_;
  std::unique_ptr<Buffer> logits_;
  std::vector<int32_t> pages_;
};

std::vector<double> LogProbabilities(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - top);
  std::vector<double> result;
  for (const float l : logits) result.push_back(l - top - std::log(sum));
  return result;
}

struct Row {
  std::string name;
  RoutingRule rule;
  std::vector<double> divergence;
  double loss = 0;
  uint64_t same = 0, positions = 0, bytes = 0;
  RoutingTally tally;
};

absl::Status Main() {
  STRATA_ASSIGN_OR_RETURN(const auto file, gguf::Model::Open(absl::GetFlag(FLAGS_model)));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(file->metadata()));
  std::stringstream text;
  text << std::ifstream(absl::GetFlag(FLAGS_text)).rdbuf();
  const std::vector<uint32_t> tokens = tokenizer->Encode(text.str(), /*parse_special=*/true);
  const uint32_t prompt = absl::GetFlag(FLAGS_prompt);
  const size_t piece = prompt + kAfter;
  const size_t texts = std::min<size_t>(absl::GetFlag(FLAGS_texts), tokens.size() / piece);
  if (texts < 2) return absl::InvalidArgumentError("the text is shorter than two pieces");
  STRATA_ASSIGN_OR_RETURN(const auto backend, CreateCpuBackend({2, 100, "auto"}));
  STRATA_ASSIGN_OR_RETURN(const auto model, LoadModel(*file, *backend));
  const auto used = static_cast<uint32_t>(model->info().experts_used);
  const int64_t vocab = model->info().vocab_size;
  const auto rows = static_cast<int>(piece);

  std::vector<Row> table = {Row{"FULL", {PromptRouting::kFull, 0, 1}, {}, 0, 0, 0, 0, {}}};
  for (const float bound : {.05F, .15F, .30F}) {
    for (const float budget : {.05F, .10F, .20F, .40F, 1.0F}) {
      table.push_back({absl::StrFormat("GUARDED %.2f, budget %.2f", bound, budget),
                       {PromptRouting::kGuarded, bound, budget},
                       {},
                       0,
                       0,
                       0,
                       0,
                       {}});
    }
  }
  table.push_back({"RESIDENT", {PromptRouting::kResident, 0, 1}, {}, 0, 0, 0, 0, {}});
  for (size_t t = 0; t < texts; ++t) {
    const auto part = std::span(tokens).subspan(t * piece, piece);
    const auto other = std::span(tokens).subspan((t + 1) % texts * piece, piece);
    std::vector<float> full;
    for (Row& row : table) {
      STRATA_ASSIGN_OR_RETURN(const auto store, Store::Start(*file, used));
      ArenaExpertSource experts({store->options.attach_path, store->options.fingerprint});
      STRATA_RETURN_IF_ERROR(experts.WaitUntilReady(20000));
      STRATA_ASSIGN_OR_RETURN(
          auto kv, KvCache::Create(*backend, model->kv_shape(), KvCache::PagesFor(rows)));
      STRATA_ASSIGN_OR_RETURN(auto memory,
                              backend->Allocate(model->ScratchBytes(rows), "activations"));
      STRATA_ASSIGN_OR_RETURN(auto logits,
                              backend->Allocate(Scratch::Bytes(kAfter, vocab), "logits"));
      Reader reader(*backend, *model, experts, std::move(kv), std::move(memory), std::move(logits));
      // What the arena holds comes from another text, token by token as decoding would.
      for (uint32_t i = 0; i < 128; ++i) {
        STRATA_RETURN_IF_ERROR(
            reader.Run(other.subspan(i, 1), static_cast<int>(i), nullptr).status());
      }
      const uint64_t before = store->plane->Status().bytes_read;
      STRATA_RETURN_IF_ERROR(reader.Run(part.first(prompt), 0, &row.rule).status());
      row.bytes += store->plane->Status().bytes_read - before;
      row.tally.Add(reader.tally);
      STRATA_ASSIGN_OR_RETURN(const std::vector<float> after,
                              reader.Run(part.subspan(prompt), static_cast<int>(prompt), nullptr));
      if (row.rule.mode == PromptRouting::kFull) full = after;
      for (uint32_t i = 0; i + 1 < kAfter; ++i) {
        const auto width = static_cast<size_t>(vocab);
        const auto p = LogProbabilities(std::span(full).subspan(i * width, width));
        const auto q = LogProbabilities(std::span(after).subspan(i * width, width));
        double divergence = 0;
        for (size_t v = 0; v < width; ++v) divergence += std::exp(p[v]) * (p[v] - q[v]);
        row.divergence.push_back(divergence);
        row.loss -= q[part[prompt + i + 1]];
        row.same += std::max_element(p.begin(), p.end()) - p.begin() ==
                    std::max_element(q.begin(), q.end()) - q.begin();
        ++row.positions;
      }
    }
  }
  std::cout << "| prompt routing | KL mean | KL p99 | same top token | perplexity | substituted "
               "| mass kept | bytes read |\n|---|---|---|---|---|---|---|---|\n";
  for (Row& row : table) {
    std::sort(row.divergence.begin(), row.divergence.end());
    double sum = 0;
    for (const double d : row.divergence) sum += d;
    const auto n = static_cast<double>(row.positions);
    const RoutingTally& tally = row.tally;
    const bool restricted = tally.decisions > 0;
    std::cout << absl::StreamFormat(
        "| %s | %.4f | %.4f | %.1f %% | %.2f | %.1f %% | %.3f | %.1f %% of FULL |\n", row.name,
        sum / n, row.divergence[static_cast<size_t>(0.99 * n)],
        100.0 * static_cast<double>(row.same) / n, std::exp(row.loss / n),
        restricted
            ? 100.0 * static_cast<double>(tally.substituted) / static_cast<double>(tally.choices)
            : 0,
        restricted ? tally.kept_mass / static_cast<double>(tally.decisions) : 1,
        100.0 * static_cast<double>(row.bytes) / static_cast<double>(table[0].bytes));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::compute

int main(int argc, char** argv) {
  return strata::bench::RunMain(argc, argv, strata::compute::Main);
}
