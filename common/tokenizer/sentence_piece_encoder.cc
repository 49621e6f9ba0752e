#include "common/tokenizer/sentence_piece_encoder.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "common/base/status.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace strata::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Length that the leading byte promises; bytes that cannot lead count as one character each.
size_t CharacterLength(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

std::string MarkSpaces(std::string_view text, bool space_prefix) {
  std::string marked(space_prefix ? kSpaceMark : "");
  marked.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

}  // namespace

SentencePieceEncoder::SentencePieceEncoder(const TokenTable& tokens, std::vector<float> scores)
    : tokens_(tokens), scores_(std::move(scores)) {}

absl::StatusOr<std::unique_ptr<SentencePieceEncoder>> SentencePieceEncoder::Build(
    const TokenTable& tokens, std::vector<float> scores) {
  if (scores.size() < tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.scores has ", scores.size(), " entries for ", tokens.size(),
                     " tokens; a 'llama' vocabulary needs one for each"));
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (std::isnan(scores[id])) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.scores[", id, "] is not a number"));
    }
  }
  std::unique_ptr<SentencePieceEncoder> encoder(
      new SentencePieceEncoder(tokens, std::move(scores)));
  STRATA_RETURN_IF_ERROR(encoder->AddTokens());
  STRATA_RETURN_IF_ERROR(encoder->AddBytes());
  return encoder;
}

absl::Status SentencePieceEncoder::AddTokens() {
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    // Like SentencePiece itself, and unlike llama.cpp, a text never becomes a control token; nor is
    // "<0x0A>" in a text a newline.
    if (tokens_.IsControl(id) || (tokens_.flags(id) & kFlagByte) != 0) continue;
    const std::string_view text = tokens_.Text(id);
    words_.Insert(text, id);
    longest_token_ = std::max(longest_token_, text.size());
    for (size_t mark = text.find(kSpaceMark, 1); mark != text.npos;
         mark = text.find(kSpaceMark, mark + 1)) {
      before_space_mark_.set(static_cast<uint8_t>(text[mark - 1]));
    }
  }
  return absl::OkStatus();
}

absl::Status SentencePieceEncoder::AddBytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = absl::StrFormat("<0x%02X>", byte);
    const std::optional<uint32_t> id = tokens_.FindText(text);
    if (!id) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens lacks '", text,
                       "'; a 'llama' vocabulary must have a token for every byte"));
    }
    byte_tokens_[byte] = *id;
  }
  return absl::OkStatus();
}

void SentencePieceEncoder::Encode(std::string_view text, bool space_prefix,
                                  std::vector<uint32_t>* ids) const {
  const std::string marked = MarkSpaces(text, space_prefix);
  // Where no token has a space mark after this byte, no join crosses the place before the mark, so
  // what lies on both sides can be encoded separately with the same result.
  size_t begin = 0;
  for (size_t i = 0; i < marked.size();) {
    const size_t length = CharacterLength(marked[i]);
    if (i > begin && std::string_view(marked).substr(i, length) == kSpaceMark &&
        !before_space_mark_.test(static_cast<uint8_t>(marked[i - 1]))) {
      EncodeStretch(std::string_view(marked).substr(begin, i - begin), ids);
      begin = i;
    }
    i += length;
  }
  if (begin < marked.size()) EncodeStretch(std::string_view(marked).substr(begin), ids);
}

void SentencePieceEncoder::EncodeStretch(std::string_view marked,
                                         std::vector<uint32_t>* ids) const {
  struct Node {
    uint32_t begin;
    uint32_t length;    // 0: joined to a node on its left
    uint32_t next;      // index of the right neighbour, or kEnd
    uint32_t previous;  // index of the left neighbour, or kEnd
  };
  struct Entry {
    float score;
    uint32_t left;
    uint32_t right;
    uint32_t length;  // of both together: an entry is stale once it differs
  };
  constexpr uint32_t kEnd = 0xFFFFFFFF;
  const auto later = [](const Entry& a, const Entry& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  };
  std::vector<Node> nodes;
  for (size_t begin = 0; begin < marked.size();) {
    const size_t length = std::min(CharacterLength(marked[begin]), marked.size() - begin);
    const auto index = static_cast<uint32_t>(nodes.size());
    nodes.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(length), index + 1,
                     index == 0 ? kEnd : index - 1});
    begin += length;
  }
  nodes.back().next = kEnd;
  std::priority_queue<Entry, std::vector<Entry>, decltype(later)> queue(later);
  const auto offer = [&](uint32_t left, uint32_t right) {
    if (left == kEnd || right == kEnd) return;
    const uint32_t length = nodes[left].length + nodes[right].length;
    if (length > longest_token_) return;
    const std::optional<uint32_t> id = words_.Find(marked.substr(nodes[left].begin, length));
    if (id) queue.push({scores_[*id], left, right, length});
  };
  for (uint32_t i = 0; i + 1 < nodes.size(); ++i) offer(i, i + 1);
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    Node& left = nodes[entry.left];
    Node& right = nodes[entry.right];
    if (left.length == 0 || right.length == 0 || left.length + right.length != entry.length) {
      continue;
    }
    left.length = entry.length;
    right.length = 0;
    left.next = right.next;
    if (left.next != kEnd) nodes[left.next].previous = entry.left;
    offer(left.previous, entry.left);
    offer(entry.left, left.next);
  }
  for (uint32_t i = 0; i != kEnd; i = nodes[i].next) {
    Append(marked.substr(nodes[i].begin, nodes[i].length), ids);
  }
}

std::optional<uint32_t> SentencePieceEncoder::FindPiece(std::string_view piece) const {
  const std::optional<uint32_t> id = words_.Find(MarkSpaces(piece, false));
  return id && tokens_.Piece(*id) == piece ? id : std::nullopt;
}

void SentencePieceEncoder::Append(std::string_view symbol, std::vector<uint32_t>* ids) const {
  if (const std::optional<uint32_t> id = words_.Find(symbol)) return ids->push_back(*id);
  for (const char c : symbol) ids->push_back(byte_tokens_[static_cast<uint8_t>(c)]);
}

}  // namespace strata::tokenizer
