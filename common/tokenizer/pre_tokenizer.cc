#include "common/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "common/tokenizer/unicode_class.h"
#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

constexpr PreTokenizer kKnown[] = {
    // name, rule, ignore_merges, add_bos
    {"default", SplitRule::kDefault, false, false},
    {"gpt-2", SplitRule::kGpt2, false, false},
    {"llama-bpe", SplitRule::kLlama3, true, true},
    {"llama3", SplitRule::kLlama3, true, true},
    {"llama-v3", SplitRule::kLlama3, true, true},
    {"qwen2", SplitRule::kQwen2, false, false},
    {"deepseek-r1-qwen", SplitRule::kQwen2, false, false},
    {"qwen35", SplitRule::kQwen35, false, false},
    {"gpt-4o", SplitRule::kGpt4o, false, false},
    {"llama4", SplitRule::kGpt4o, false, false},
    {"minimax-m2", SplitRule::kGpt4o, false, false},
    {"deepseek-v3", SplitRule::kDeepSeek3, false, false},
    {"joyai-llm", SplitRule::kDeepSeek3, false, false},
    {"hunyuan-dense", SplitRule::kDeepSeek3, false, false},
    {"glm4", SplitRule::kLlama3, false, false},
};

struct Char {
  uint32_t code_point;
  uint32_t length;
  CharClass char_class;

  bool Is(CharClass a) const { return char_class == a; }
  bool Is(CharClass a, CharClass b) const { return char_class == a || char_class == b; }
  bool IsNewline() const { return code_point == '\r' || code_point == '\n'; }
  bool IsAsciiDigit() const { return code_point >= '0' && code_point <= '9'; }
  bool IsAsciiUpper() const { return code_point >= 'A' && code_point <= 'Z'; }
  bool IsAsciiLower() const { return code_point >= 'a' && code_point <= 'z'; }
  bool IsAsciiPunctuation() const {
    return code_point < 0x80 && Is(CharClass::kPunctuation, CharClass::kSymbol);
  }
};

// The characters of one piece of text. A piece ends where an earlier cut was made, and the end of a
// piece looks like the end of the text to every rule, including (?!\S).
class Piece {
 public:
  Piece(std::string_view text, size_t begin, size_t end)
      : text_(text.substr(0, end)), begin_(begin), classes_(GetUnicodeClasses()) {}

  size_t begin() const { return begin_; }
  size_t end() const { return text_.size(); }
  std::string_view text() const { return text_; }

  Char At(size_t position) const {
    if (position >= text_.size()) return {0xFFFFFFFF, 0, CharClass::kEnd};
    const CodePoint c = DecodeAt(text_, position);
    return {c.value, c.length, classes_.Of(c.value)};
  }

  // The first position from `position` on whose character does not satisfy `accept`.
  template <class Predicate>
  size_t Skip(size_t position, Predicate accept) const {
    for (Char c = At(position); !c.Is(CharClass::kEnd) && accept(c); c = At(position)) {
      position += c.length;
    }
    return position;
  }

  size_t SkipClass(size_t position, CharClass char_class) const {
    return Skip(position, [char_class](const Char& c) { return c.Is(char_class); });
  }

  // End of at most three numbers.
  size_t SkipThreeNumbers(size_t position) const {
    int count = 0;
    return Skip(position,
                [&count](const Char& c) { return c.Is(CharClass::kNumber) && count++ < 3; });
  }

 private:
  std::string_view text_;
  size_t begin_;
  const UnicodeClasses& classes_;
};

char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Length of 's 't 'm 'd 're 've 'll at the position, or 0.
size_t ContractionLength(const Piece& piece, size_t position, bool ignore_case) {
  const std::string_view rest = piece.text().substr(std::min(position, piece.end()), 3);
  if (rest.size() < 2 || rest[0] != '\'') return 0;
  const auto letter = [&](size_t i) { return ignore_case ? LowerAscii(rest[i]) : rest[i]; };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (rest.size() < 3) return 0;
  const char second = letter(2);
  const bool known = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
  return known ? 3 : 0;
}

// S*[\r\n]+|S+(?!\S)|S+ at a space; `newlines` = whether the first alternative exists.
// A run before other text leaves its last character to the next word.
size_t SpaceEnd(const Piece& piece, size_t position, bool newlines) {
  size_t last = position;           // start of the run's last character
  size_t after_newline = position;  // end of the last newline in the run
  size_t end = position;
  for (Char c = piece.At(end); c.Is(CharClass::kSpace); c = piece.At(end)) {
    last = end;
    end += c.length;
    if (c.IsNewline()) after_newline = end;
  }
  if (newlines && after_newline > position) return after_newline;
  if (end == piece.end() || last == position) return end;
  return last;
}

// Each scanner below gives the end of the word that starts at `position` (which is inside the
// piece).

size_t Gpt2End(const Piece& piece, size_t position) {
  if (const size_t length = ContractionLength(piece, position, false)) return position + length;
  const Char first = piece.At(position);
  const size_t start = position + (first.code_point == ' ' ? 1 : 0);
  const Char c = start == position ? first : piece.At(start);
  if (c.Is(CharClass::kSpace, CharClass::kEnd)) return SpaceEnd(piece, position, false);
  if (c.Is(CharClass::kLetter, CharClass::kNumber)) return piece.SkipClass(start, c.char_class);
  return piece.Skip(start, [](const Char& x) {
    return !x.Is(CharClass::kLetter, CharClass::kNumber) && !x.Is(CharClass::kSpace);
  });
}

// Llama-3, Qwen2 and Qwen3.5 differ in the size of number groups and in whether marks belong to
// words.
template <bool kThreeNumbers, bool kMarksInWords>
size_t LlamaEnd(const Piece& piece, size_t position) {
  if (const size_t length = ContractionLength(piece, position, true)) return position + length;
  const auto in_word = [](const Char& c) {
    return c.Is(CharClass::kLetter) || (kMarksInWords && c.Is(CharClass::kMark));
  };
  const Char first = piece.At(position);
  const size_t second = position + first.length;
  if (in_word(first)) return piece.Skip(second, in_word);
  if (first.Is(CharClass::kNumber)) {
    return kThreeNumbers ? piece.SkipThreeNumbers(position) : second;
  }
  const Char next = piece.At(second);
  if (!first.IsNewline() && in_word(next)) return piece.Skip(second, in_word);
  const size_t start = first.code_point == ' ' ? second : position;
  const Char c = first.code_point == ' ' ? next : first;
  if (c.Is(CharClass::kSpace, CharClass::kEnd) || c.Is(CharClass::kNumber) || in_word(c)) {
    return SpaceEnd(piece, position, true);
  }
  const size_t end = piece.Skip(start, [&in_word](const Char& x) {
    return !x.Is(CharClass::kSpace, CharClass::kNumber) && !in_word(x);
  });
  return piece.Skip(end, [](const Char& x) { return x.IsNewline(); });
}

// U*W+|U+W* at a letter: the end of the longest run of U, then of W; a run of U without a following
// W gives characters back until the last one is also a W (a letter outside ASCII is both).
size_t CasedWordEnd(const Piece& piece, size_t position) {
  const auto lower_or_other = [](const Char& c) {
    return c.Is(CharClass::kLetter) && !c.IsAsciiUpper();
  };
  size_t end = position;
  size_t after_other = position;  // end of the last letter that is both U and W
  for (Char c = piece.At(end); c.Is(CharClass::kLetter) && !c.IsAsciiLower(); c = piece.At(end)) {
    end += c.length;
    if (!c.IsAsciiUpper()) after_other = end;
  }
  if (piece.At(end).IsAsciiLower()) return piece.Skip(end, lower_or_other);
  return after_other > position ? after_other : end;
}

size_t Gpt4oEnd(const Piece& piece, size_t position) {
  const Char first = piece.At(position);
  const size_t second = position + first.length;
  if (first.Is(CharClass::kNumber)) return piece.SkipThreeNumbers(position);
  const Char next = piece.At(second);
  const bool is_letter = first.Is(CharClass::kLetter);
  if (is_letter || (!first.IsNewline() && next.Is(CharClass::kLetter))) {
    const size_t end = CasedWordEnd(piece, is_letter ? position : second);
    return end + ContractionLength(piece, end, true);
  }
  const size_t start = first.code_point == ' ' ? second : position;
  const Char c = first.code_point == ' ' ? next : first;
  if (c.Is(CharClass::kSpace, CharClass::kEnd) || c.Is(CharClass::kNumber)) {
    return SpaceEnd(piece, position, true);
  }
  const size_t end = piece.Skip(start, [](const Char& x) {
    return !x.Is(CharClass::kLetter, CharClass::kNumber) && !x.Is(CharClass::kSpace);
  });
  return piece.Skip(end, [](const Char& x) { return x.IsNewline() || x.code_point == '/'; });
}

// The third expression of DeepSeek-V3. Returns `position` itself where no alternative matches.
size_t DeepSeekMatchEnd(const Piece& piece, size_t position) {
  const auto in_word = [](const Char& c) { return c.Is(CharClass::kLetter, CharClass::kMark); };
  const auto is_symbol = [](const Char& c) {
    return c.Is(CharClass::kPunctuation, CharClass::kSymbol);
  };
  const Char first = piece.At(position);
  const size_t second = position + first.length;
  if (in_word(first)) return piece.Skip(second, in_word);
  const Char next = piece.At(second);
  if (first.IsAsciiPunctuation() && (next.IsAsciiLower() || next.IsAsciiUpper())) {
    return piece.Skip(second, [](const Char& c) { return c.IsAsciiLower() || c.IsAsciiUpper(); });
  }
  if (!first.IsNewline() && !is_symbol(first) && in_word(next)) return piece.Skip(second, in_word);
  const size_t start = first.code_point == ' ' ? second : position;
  if (is_symbol(piece.At(start))) {
    return piece.Skip(piece.Skip(start, is_symbol), [](const Char& c) { return c.IsNewline(); });
  }
  return first.Is(CharClass::kSpace) ? SpaceEnd(piece, position, true) : position;
}

template <class Scanner>
void ScanPiece(const Piece& piece, Scanner scanner, std::vector<size_t>* ends) {
  for (size_t position = piece.begin(); position < piece.end();) {
    position = scanner(piece, position);
    ends->push_back(position);
  }
}

// Words are the matches of the third expression and what lies between them.
void ScanDeepSeekPiece(const Piece& piece, std::vector<size_t>* ends) {
  size_t start = piece.begin();
  for (size_t position = start; position < piece.end();) {
    const size_t end = DeepSeekMatchEnd(piece, position);
    if (end == position) {
      position += piece.At(position).length;
      continue;
    }
    if (position > start) ends->push_back(position);
    ends->push_back(end);
    position = start = end;
  }
  if (start < piece.end()) ends->push_back(piece.end());
}

void SplitDeepSeek(std::string_view text, std::vector<size_t>* ends) {
  const auto is_cjk = [](const Char& c) {
    return (c.code_point >= 0x4E00 && c.code_point <= 0x9FA5) ||
           (c.code_point >= 0x3040 && c.code_point <= 0x30FF);
  };
  const Piece all(text, 0, text.size());
  for (size_t position = 0; position < text.size();) {
    const Char c = all.At(position);
    if (c.Is(CharClass::kNumber)) {
      position = all.SkipThreeNumbers(position);
      ends->push_back(position);
      continue;
    }
    const bool cjk = is_cjk(c);
    const size_t end = all.Skip(
        position, [&](const Char& x) { return is_cjk(x) == cjk && !x.Is(CharClass::kNumber); });
    ScanDeepSeekPiece(Piece(text, position, end), ends);
    position = end;
  }
}

// A word of kGpt2, cut at its runs of numbers, and those at their groups of three ASCII digits.
void CutNumbers(const Piece& word, std::vector<size_t>* ends) {
  for (size_t position = word.begin(); position < word.end();) {
    if (!word.At(position).Is(CharClass::kNumber)) {
      position = word.Skip(position, [](const Char& c) { return !c.Is(CharClass::kNumber); });
      ends->push_back(position);
      continue;
    }
    const size_t run_end = word.SkipClass(position, CharClass::kNumber);
    size_t rest = position;  // start of what no group has taken yet
    while (position < run_end) {
      int digits = 0;
      const size_t group_end = word.Skip(
          position, [&digits](const Char& c) { return c.IsAsciiDigit() && digits++ < 3; });
      if (group_end < position + 3) {
        position += word.At(position).length;
        continue;
      }
      if (position > rest) ends->push_back(position);
      ends->push_back(group_end);
      position = rest = group_end;
    }
    if (rest < run_end) ends->push_back(run_end);
  }
}

void SplitDefault(std::string_view text, std::vector<size_t>* ends) {
  const auto is_cut = [](const Char& c) {
    constexpr std::string_view kSymbols = "$+<=>^~|";
    return c.Is(CharClass::kPunctuation) ||
           (c.code_point < 0x80 && kSymbols.find(static_cast<char>(c.code_point)) != kSymbols.npos);
  };
  const Piece all(text, 0, text.size());
  for (size_t position = 0; position < text.size();) {
    const bool cut = is_cut(all.At(position));
    const size_t end = all.Skip(position, [&](const Char& c) { return is_cut(c) == cut; });
    if (cut) {
      ends->push_back(end);
    } else {
      const Piece piece(text, position, end);
      for (size_t word = position; word < end;) {
        const size_t word_end = Gpt2End(piece, word);
        CutNumbers(Piece(text, word, word_end), ends);
        word = word_end;
      }
    }
    position = end;
  }
}

}  // namespace

std::span<const PreTokenizer> KnownPreTokenizers() { return kKnown; }

std::optional<PreTokenizer> FindPreTokenizer(std::string_view name) {
  const auto* found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [name](const PreTokenizer& p) { return p.name == name; });
  if (found == std::end(kKnown)) return std::nullopt;
  return *found;
}

void SplitWords(SplitRule rule, std::string_view text, std::vector<size_t>* ends) {
  const Piece all(text, 0, text.size());
  switch (rule) {
    case SplitRule::kGpt2:
      return ScanPiece(all, Gpt2End, ends);
    case SplitRule::kLlama3:
      return ScanPiece(all, LlamaEnd<true, false>, ends);
    case SplitRule::kQwen2:
      return ScanPiece(all, LlamaEnd<false, false>, ends);
    case SplitRule::kQwen35:
      return ScanPiece(all, LlamaEnd<false, true>, ends);
    case SplitRule::kGpt4o:
      return ScanPiece(all, Gpt4oEnd, ends);
    case SplitRule::kDeepSeek3:
      return SplitDeepSeek(text, ends);
    case SplitRule::kDefault:
      return SplitDefault(text, ends);
  }
}

}  // namespace strata::tokenizer
