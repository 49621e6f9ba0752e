#include "tests/engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "cli/bench_text.h"
#include "common/base/status.h"
#include "common/gguf/reader.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/engine/local_engine.h"
#include "tests/oracle/llama_model.h"

namespace strata::compute {
namespace {

double Loss(std::span<const float> logits, uint32_t next) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l} - top);
  return top + std::log(sum) - logits[next];
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> TextTokens(const std::string& model, std::string_view text,
                                                 size_t count, bool special) {
  STRATA_ASSIGN_OR_RETURN(const auto file, gguf::Model::Open(model));
  STRATA_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::FromGguf(file->metadata()));
  std::vector<uint32_t> tokens = tokenizer->Encode(text, special);
  if (tokens.size() < count) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", tokens.size(), " tokens, not ", count));
  }
  tokens.resize(count);
  return tokens;
}

std::string RepositoryText() {
  std::string text(cli::kBenchText);
  std::set<std::filesystem::path> files;  // sorted: the same text on every machine
  for (const char* folder : {"docs", "common", "services", "cli", "deploy", "tests"}) {
    std::error_code error;  // not in the source tree: the text is short, which TextTokens reports
    for (auto it = std::filesystem::recursive_directory_iterator(folder, error);
         it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
      if (it->path().extension() == ".md" || it->path().filename() == "NOTICE") {
        files.insert(it->path());
      }
    }
  }
  files.insert("README.md");
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path);
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

double Agreement::OurPerplexity() const {
  return std::exp(our_loss / static_cast<double>(positions));
}
double Agreement::TheirPerplexity() const {
  return std::exp(their_loss / static_cast<double>(positions));
}
double Agreement::Ratio() const {
  return std::exp((our_loss - their_loss) / static_cast<double>(positions));
}
double Agreement::StandardError() const {
  const auto n = static_cast<double>(positions);
  const double mean = (our_loss - their_loss) / n;
  return std::sqrt(std::max(0.0, difference_squares / n - mean * mean) / n);
}

absl::StatusOr<Agreement> CompareOnText(const std::string& model, std::span<const uint32_t> tokens,
                                        size_t piece, int threads, const std::string& isa,
                                        const std::string& kv_type) {
  v1::ComputeConfig config = SmallConfig();
  config.set_threads(static_cast<uint32_t>(threads));
  config.set_isa(isa);
  config.set_kv_type(kv_type);
  oracle::LlamaModelOptions options;
  options.threads = threads;
  const TensorTypeInfo* cache = FindTensorType(std::string_view(kv_type));
  if (cache == nullptr) return absl::InvalidArgumentError("no K/V type " + kv_type);
  options.cache = cache->type;
  options.flash_attention = cache->block_values > 1;  // llama.cpp has such values only with it
  STRATA_ASSIGN_OR_RETURN(const auto llama,
                          oracle::LlamaModel::Load(*oracle::LlamaLibrary::Get(), model, options));
  Agreement agreement;
  for (size_t begin = 0; begin < tokens.size(); begin += piece) {
    const auto part = tokens.subspan(begin, std::min(piece, tokens.size() - begin));
    const std::vector<int32_t> ids(part.begin(), part.end());
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> theirs, llama->Logits(ids));
    STRATA_ASSIGN_OR_RETURN(const std::vector<float> ours, AllLogits(model, config, part));
    const size_t vocab = ours.size() / part.size();
    for (size_t i = 0; i + 1 < part.size(); ++i) {
      const auto a = std::span(ours).subspan(i * vocab, vocab);
      const auto b = std::span(theirs).subspan(i * vocab, vocab);
      ++agreement.positions;
      agreement.same_top += std::max_element(a.begin(), a.end()) - a.begin() ==
                            std::max_element(b.begin(), b.end()) - b.begin();
      const double our_loss = Loss(a, part[i + 1]);
      const double their_loss = Loss(b, part[i + 1]);
      agreement.our_loss += our_loss;
      agreement.their_loss += their_loss;
      agreement.difference_squares += (our_loss - their_loss) * (our_loss - their_loss);
    }
  }
  return agreement;
}

}  // namespace strata::compute
