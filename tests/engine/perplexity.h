// How well two engines agree on a text: ours and llama.cpp on the same file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata::compute {

// The first `count` tokens of `text` in the vocabulary of `model`; an error if it has fewer.
// `special`: marks such as <|im_start|> are the tokens of that name.
absl::StatusOr<std::vector<uint32_t>> TextTokens(const std::string& model, std::string_view text,
                                                 size_t count, bool special = false);
// English prose and Markdown that is part of the source tree (tests run in its root): about 20,000
// tokens of the demo model.
std::string RepositoryText();

struct Agreement {
  size_t positions = 0;
  size_t same_top = 0;  // of those: the same most likely token
  // Sums over the positions. A loss is -log of the probability given to the token that follows.
  double our_loss = 0;
  double their_loss = 0;
  double difference_squares = 0;  // of our loss - their loss

  double OurPerplexity() const;
  double TheirPerplexity() const;
  double Ratio() const;  // ours / theirs
  // Of Ratio(): what the choice of the text is worth, as positions differ independently.
  double StandardError() const;
};

// Both engines read the text in pieces of `piece` tokens, each from an empty context, with keys and
// values in `kv_type` (compute.kv_type); ours with the kernels of `isa` (cpu_backend.h): "scalar"
// multiplies weights by activations as they are, not rounded to int8.
absl::StatusOr<Agreement> CompareOnText(const std::string& model, std::span<const uint32_t> tokens,
                                        size_t piece, int threads = 2,
                                        const std::string& isa = "auto",
                                        const std::string& kv_type = "f16");

}  // namespace strata::compute
