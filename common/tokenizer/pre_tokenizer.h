// Pre-tokenizers: how byte-level BPE vocabularies cut a text into words before merging. A merge
// never crosses a word border, so the cut decides the tokens as much as the merges do.
//
// Each rule is the published regular expression of a model family, as llama.cpp applies it (its
// adapted form where the two differ, e.g. gpt-4o's words without combining marks). They are written
// as scanners and not run by a regex engine: the engines' Unicode tables differ between versions, a
// backtracking engine needs a stack as long as the word, and a scanner is several times faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// (S = \s, L N M P = the Unicode categories, C = (?i:'s|'t|'re|'ve|'m|'ll|'d))
enum class SplitRule : uint8_t {
  // 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^SLN]+|S+(?!\S)|S+
  kGpt2,
  // C|[^\r\nLN]?L+|N{1,3}| ?[^SLN]+[\r\n]*|S*[\r\n]+|S+(?!\S)|S+
  kLlama3,
  // the same with N instead of N{1,3}
  kQwen2,
  // kQwen2 with [LM]+ instead of L+ and [^SLMN]+ instead of [^SLN]+
  kQwen35,
  // [^\r\nLN]?U*W+C?|[^\r\nLN]?U+W*C?|N{1,3}| ?[^SLN]+[\r\n/]*|S*[\r\n]+|S+(?!\S)|S+
  // where U = letters without a-z, W = letters without A-Z
  kGpt4o,
  // Cut out N{1,3}, then runs of U+4E00-9FA5 and U+3040-30FF, then in the rest
  // [ASCII punctuation][A-Za-z]+|[^\r\nLPS]?[LM]+| ?[PS]+[\r\n]*|S*[\r\n]+|S+(?!\S)|S+
  // What no alternative matches stays one word.
  kDeepSeek3,
  // Cut out runs of [P$+<=>^~|], then kGpt2, then cut out N+, then groups of three ASCII digits.
  kDefault,
};

// A name a GGUF file may give in `tokenizer.ggml.pre`, and what it implies.
struct PreTokenizer {
  std::string_view name;
  SplitRule rule;
  bool ignore_merges;  // a word that is in the vocabulary as it stands is that token
  bool add_bos;        // default of tokenizer.ggml.add_bos_token
};

std::span<const PreTokenizer> KnownPreTokenizers();
std::optional<PreTokenizer> FindPreTokenizer(std::string_view name);

// Appends the end offset of every word to *ends; words are adjacent and cover the text.
// The text must be well formed (see RepairUtf8). Linear time, constant stack.
void SplitWords(SplitRule rule, std::string_view text, std::vector<size_t>* ends);

}  // namespace strata::tokenizer
