#include "tests/bench/speed.h"

#include <algorithm>
#include <random>

#include "cli/bench_text.h"
#include "common/gguf/reader.h"
#include "common/tokenizer/tokenizer.h"

namespace strata::bench {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<uint32_t> PromptTokens(const std::string& model, uint32_t vocab_size, size_t length) {
  std::vector<uint32_t> once;
  if (const auto file = gguf::Model::Open(model); file.ok()) {
    if (const auto tokenizer = tokenizer::Tokenizer::FromGguf((*file)->metadata());
        tokenizer.ok()) {
      once = (*tokenizer)->Encode(cli::kBenchText, /*parse_special=*/false);
    }
  }
  std::mt19937 random(1);
  std::vector<uint32_t> tokens;
  while (tokens.size() < length) {
    tokens.push_back(once.empty() ? random() % vocab_size : once[tokens.size() % once.size()]);
  }
  return tokens;
}

}  // namespace strata::bench
