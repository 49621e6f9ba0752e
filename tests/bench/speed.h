// Speed of one engine on one model: prompt reading and generation.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::bench {

struct Speed {
  double prompt = 0;      // tokens per second
  double generation = 0;  // tokens per second
};

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double Median(std::vector<double> values);

// `length` tokens of natural text in the model's own vocabulary (the text of `strata bench model`),
// or, for a model without a vocabulary, of a fixed pseudo-random sequence below `vocab_size`.
std::vector<uint32_t> PromptTokens(const std::string& model, uint32_t vocab_size, size_t length);

}  // namespace strata::bench
