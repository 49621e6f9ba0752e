#include "common/tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <queue>
#include <string>

#include "common/base/status.h"
#include "common/tokenizer/byte_alphabet.h"

#include "absl/strings/str_cat.h"

namespace strata::tokenizer {
namespace {

// Up to here a scan of all ranks for each merge is faster than a heap.
constexpr size_t kShortWord = 64;

// Bytes that no repaired UTF-8 contains.
bool NeverInText(int byte) { return byte == 0xC0 || byte == 0xC1 || byte > 0xF4; }

absl::Status BadMerge(size_t index, std::string_view merge, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges[", index, "] = '",
                                                 A(merge.substr(0, 100)), "' ", A(what)));
}

}  // namespace

BytePairEncoder::BytePairEncoder(const TokenTable& tokens, bool ignore_merges)
    : tokens_(tokens), ignore_merges_(ignore_merges), pairs_(0) {}

absl::StatusOr<std::unique_ptr<BytePairEncoder>> BytePairEncoder::Build(
    const TokenTable& tokens, std::span<const std::string_view> merges, bool ignore_merges) {
  std::unique_ptr<BytePairEncoder> encoder(new BytePairEncoder(tokens, ignore_merges));
  encoder->AddWords();
  STRATA_RETURN_IF_ERROR(encoder->AddBytes());
  STRATA_RETURN_IF_ERROR(encoder->AddMerges(merges));
  encoder->memo_ = std::make_unique<std::atomic<Memo>[]>(tokens.size());
  encoder->extra_.clear();
  return encoder;
}

void BytePairEncoder::AddWords() {
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_.IsControl(id)) continue;
    const std::string_view text = tokens_.Text(id);
    const std::string_view piece = tokens_.Piece(id);
    // A merge spells its result in the alphabet, whatever the type of that token is: the bytes are
    // those of the spelling, also for a user-defined token, whose piece is its literal text.
    const std::optional<std::string> bytes = AlphabetToBytes(text);
    if (!bytes) continue;
    if (*bytes == piece) {
      words_.Insert(piece, id);
    } else if (*bytes == text) {
      words_.Insert(text, id);
    } else {
      words_.Insert(spelled_.emplace_back(*bytes), id);
    }
  }
}

absl::Status BytePairEncoder::AddBytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const std::optional<uint32_t> id = words_.Find({&c, 1});
    if (!id && !NeverInText(byte)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.tokens lacks '", A(ByteToAlphabet(c)), "', the token of byte ", byte,
          "; a byte-level vocabulary must have one for every byte"));
    }
    byte_symbols_[byte] = id ? *id : FindOrAddSymbol(std::string(1, c));
  }
  return absl::OkStatus();
}

BytePairEncoder::Symbol BytePairEncoder::FindOrAddSymbol(const std::string& bytes) {
  if (const std::optional<uint32_t> id = words_.Find(bytes)) return *id;
  const Symbol next = static_cast<Symbol>(tokens_.size() + extra_symbols_.size());
  const auto [found, is_new] = extra_.try_emplace(bytes, next);
  if (is_new) extra_symbols_.push_back(bytes);
  return found->second;
}

absl::Status BytePairEncoder::AddMerges(std::span<const std::string_view> merges) {
  if (merges.size() > kMaxMerges) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges has ", merges.size(),
                                                   " entries, more than the limit of ",
                                                   kMaxMerges));
  }
  pairs_ = PairTable(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos || space + 1 == merge.size()) {
      return BadMerge(rank, merge, "is not two symbols with a space between them");
    }
    const std::string_view left_text = merge.substr(0, space);
    const std::string_view right_text = merge.substr(space + 1);
    const std::optional<std::string> left = AlphabetToBytes(left_text);
    const std::optional<std::string> right = AlphabetToBytes(right_text);
    if (!left || !right) {
      return BadMerge(rank, merge, "has a character outside the byte-level alphabet");
    }
    // Text must not become a control token by way of a merge.
    const auto whole = tokens_.FindText(S(absl::StrCat(A(left_text), A(right_text))));
    if (whole && tokens_.IsControl(*whole)) continue;
    pairs_.Insert(FindOrAddSymbol(*left), FindOrAddSymbol(*right),
                  {static_cast<uint32_t>(rank), FindOrAddSymbol(*left + *right)});
  }
  byte_pairs_.resize(size_t{1} << 16);
  for (size_t i = 0; i < byte_pairs_.size(); ++i) {
    byte_pairs_[i] = RuleFor(byte_symbols_[i >> 8], byte_symbols_[i & 0xFF]);
  }
  return absl::OkStatus();
}

void BytePairEncoder::EncodeWord(std::string_view word, std::vector<uint32_t>* ids) const {
  if (word.size() == 1) return Append(byte_symbols_[static_cast<uint8_t>(word[0])], ids);
  const std::optional<uint32_t> token = words_.Find(word);
  if (!token) return word.size() <= kShortWord ? MergeShort(word, ids) : MergeLong(word, ids);
  if (ignore_merges_) return ids->push_back(*token);
  // Most words of most texts are one token. That its merges do lead to the token is a property of
  // the vocabulary, so it is found out once; two threads doing so at once write the same value.
  std::atomic<Memo>& memo = memo_[*token];
  if (memo.load(std::memory_order_relaxed) == Memo::kMergesToItself) return ids->push_back(*token);
  const size_t before = ids->size();
  word.size() <= kShortWord ? MergeShort(word, ids) : MergeLong(word, ids);
  const bool itself = ids->size() == before + 1 && ids->back() == *token;
  memo.store(itself ? Memo::kMergesToItself : Memo::kMergesToOthers, std::memory_order_relaxed);
}

void BytePairEncoder::MergeShort(std::string_view word, std::vector<uint32_t>* ids) const {
  Symbol symbols[kShortWord];
  MergeRule rules[kShortWord];  // rules[i] joins symbols i and i + 1
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_symbols_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < count; ++i) {
    rules[i] = byte_pairs_[static_cast<uint8_t>(word[i]) << 8 | static_cast<uint8_t>(word[i + 1])];
  }
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == MergeRule::kNoRank) break;
    symbols[best] = rules[best].result;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    std::copy(rules + best + 1, rules + count - 1, rules + best);
    --count;
    if (best > 0) rules[best - 1] = RuleFor(symbols[best - 1], symbols[best]);
    if (best + 1 < count) rules[best] = RuleFor(symbols[best], symbols[best + 1]);
  }
  for (size_t i = 0; i < count; ++i) Append(symbols[i], ids);
}

void BytePairEncoder::MergeLong(std::string_view word, std::vector<uint32_t>* ids) const {
  struct Node {
    Symbol symbol;
    uint32_t next;      // index of the right neighbour, or size
    uint32_t previous;  // index of the left neighbour, or size
    bool alive = true;
  };
  struct Entry {
    uint32_t rank;
    uint32_t left;
    uint32_t right;
    Symbol left_symbol, right_symbol, result;  // an entry is stale once either symbol has changed
  };
  const auto later = [](const Entry& a, const Entry& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const uint32_t size = static_cast<uint32_t>(word.size());
  std::vector<Node> nodes(size);
  std::vector<Entry> initial;
  initial.reserve(size);
  for (uint32_t i = 0; i < size; ++i) {
    nodes[i] = {byte_symbols_[static_cast<uint8_t>(word[i])], i + 1, i == 0 ? size : i - 1};
  }
  const auto make_entry = [&](uint32_t left, uint32_t right) {
    const MergeRule rule = RuleFor(nodes[left].symbol, nodes[right].symbol);
    return Entry{rule.rank, left, right, nodes[left].symbol, nodes[right].symbol, rule.result};
  };
  for (uint32_t i = 0; i + 1 < size; ++i) {
    const Entry entry = make_entry(i, i + 1);
    if (entry.rank != MergeRule::kNoRank) initial.push_back(entry);
  }
  std::priority_queue<Entry, std::vector<Entry>, decltype(later)> queue(later, std::move(initial));
  const auto offer = [&](uint32_t left, uint32_t right) {
    if (left == size || right == size) return;
    const Entry entry = make_entry(left, right);
    if (entry.rank != MergeRule::kNoRank) queue.push(entry);
  };
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    Node& left = nodes[entry.left];
    Node& right = nodes[entry.right];
    if (!left.alive || !right.alive || left.symbol != entry.left_symbol ||
        right.symbol != entry.right_symbol) {
      continue;
    }
    left.symbol = entry.result;
    left.next = right.next;
    right.alive = false;
    if (left.next != size) nodes[left.next].previous = entry.left;
    offer(left.previous, entry.left);
    offer(entry.left, left.next);
  }
  for (uint32_t i = 0; i != size; i = nodes[i].next) Append(nodes[i].symbol, ids);
}

void BytePairEncoder::Append(Symbol symbol, std::vector<uint32_t>* ids) const {
  if (symbol < tokens_.size()) return ids->push_back(symbol);
  // Only a vocabulary whose merges lead to strings it lacks gets here; the text is kept by falling
  // back to bytes. A byte without a token cannot occur (see NeverInText).
  for (const char c : extra_symbols_[symbol - tokens_.size()]) {
    const Symbol byte = byte_symbols_[static_cast<uint8_t>(c)];
    if (byte < tokens_.size()) ids->push_back(byte);
  }
}

}  // namespace strata::tokenizer
