#include "common/tokenizer/testing/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "common/tokenizer/utf8.h"
#include "tests/oracle/shared_file.h"

namespace strata::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDocumentBytes = size_t{32} << 10;

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::string Text(size_t bytes, bool valid_only) {
    std::string text;
    text.reserve(bytes + 1000);
    while (text.size() < bytes) {
      const size_t kind = Below(valid_only ? 10 : 11);
      switch (kind) {
        case 0:
          Words(&text, U'a', U'z');
          break;
        case 1:
          CasedWord(&text);
          break;
        case 2:
          Script(&text);
          break;
        case 3:
          Emoji(&text);
          break;
        case 4:
          Spaces(&text);
          break;
        case 5:
          Numbers(&text);
          break;
        case 6:
          Contraction(&text);
          break;
        case 7:
          Punctuation(&text);
          break;
        case 8:
          Anything(&text);
          break;
        case 9:
          Marks(&text);
          break;
        default:
          InvalidBytes(&text);
      }
      if (Below(2) == 0) text += ' ';
    }
    return text;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  char32_t Between(char32_t first, char32_t last) {
    return first + static_cast<char32_t>(Below(last - first + 1));
  }
  void Add(char32_t c, std::string* text) { AppendUtf8(c, text); }
  void Run(std::string* text, char32_t first, char32_t last, size_t longest) {
    for (size_t n = 1 + Below(longest); n > 0; --n) Add(Between(first, last), text);
  }
  void Words(std::string* text, char32_t first, char32_t last) {
    for (size_t n = 1 + Below(6); n > 0; --n) {
      Run(text, first, last, 9);
      *text += ' ';
    }
  }
  void CasedWord(std::string* text) {
    Run(text, 'A', 'Z', 3);
    if (Below(2) == 0) Run(text, 0xC0, 0x17F, 2);
    Run(text, 'a', 'z', 4);
    if (Below(2) == 0) Run(text, 0x391, 0x3C9, 3);
    if (Below(2) == 0) Run(text, 'A', 'Z', 3);
  }
  void Script(std::string* text) {
    static constexpr char32_t kScripts[][2] = {
        {0x4E00, 0x9FFF}, {0x4E00, 0x4FFF}, {0x3040, 0x30FF},   {0xAC00, 0xD7A3}, {0x600, 0x6FF},
        {0x590, 0x5FF},   {0x900, 0x97F},   {0xE00, 0xE7F},     {0x400, 0x4FF},   {0x370, 0x3FF},
        {0x1E00, 0x1EFF}, {0x3400, 0x4DBF}, {0x20000, 0x2A6DF}, {0xFF00, 0xFFEF}, {0x3000, 0x303F}};
    const auto& script = kScripts[Below(std::size(kScripts))];
    Run(text, script[0], script[1], 40);
  }
  void Emoji(std::string* text) {
    for (size_t n = 1 + Below(4); n > 0; --n) {
      Add(Between(0x1F300, 0x1FAFF), text);
      if (Below(3) == 0) Add(Between(0x1F3FB, 0x1F3FF), text);
      if (Below(3) == 0) Add(0x200D, text);
      if (Below(4) == 0) Add(0xFE0F, text);
      if (Below(6) == 0) Run(text, 0x1F1E6, 0x1F1FF, 2);
    }
  }
  void Spaces(std::string* text) {
    static constexpr char32_t kSpaces[] = {' ',    ' ',    '\t', '\n',   '\r',   0xB,
                                           0xC,    0x85,   0xA0, 0x1680, 0x2003, 0x2028,
                                           0x2029, 0x3000, '\n', 0x200B, 0x1C};
    const size_t one = Below(std::size(kSpaces));
    const bool same = Below(2) == 0;
    for (size_t n = 1 + Below(12); n > 0; --n) {
      Add(kSpaces[same ? one : Below(std::size(kSpaces))], text);
    }
  }
  void Numbers(std::string* text) {
    static constexpr char32_t kZeros[] = {'0', '0', '0', 0x660, 0x966, 0xFF10, 0x1D7CE, 0x2160};
    const char32_t zero = kZeros[Below(std::size(kZeros))];
    Run(text, zero, zero + 9, 11);
    if (Below(3) == 0) Run(text, '0', '9', 5);
    if (Below(4) == 0) Run(text, 0xB2, 0xBE, 2);
  }
  void Contraction(std::string* text) {
    static constexpr std::string_view kEnds[] = {
        "s", "t", "re", "ve", "m",        "ll",  "d",  "S", "T", "RE", "Ve",  "lL",
        "M", "D", "x",  "r",  "\xC5\xBF", "rex", "sd", "",  "v", "L",  "LL's"};
    if (Below(2) == 0) Run(text, 'a', 'z', 4);
    if (Below(2) == 0) Run(text, 'A', 'Z', 4);
    *text += '\'';
    *text += kEnds[Below(std::size(kEnds))];
  }
  void Punctuation(std::string* text) {
    if (Below(3) == 0) *text += ' ';
    for (size_t n = 1 + Below(6); n > 0; --n) {
      if (Below(4) == 0) {
        Add(Between(0x2010, 0x2BFF), text);
      } else {
        Add(Between('!', '/'), text);
      }
    }
    if (Below(2) == 0) *text += "/\n/\r\n";
    if (Below(2) == 0) Run(text, 'a', 'z', 3);
  }
  void Anything(std::string* text) {
    for (size_t n = 1 + Below(5); n > 0; --n) {
      char32_t c = Between(0, Below(2) == 0 ? 0x10FFFF : 0xFFFF);
      if (c >= 0xD800 && c <= 0xDFFF) c = 0xFFFD;
      Add(c, text);
    }
  }
  void Marks(std::string* text) {
    for (size_t n = 1 + Below(4); n > 0; --n) {
      if (Below(3) != 0) Add(Between('a', 'z'), text);
      Run(text, 0x300, 0x36F, 3);
      if (Below(4) == 0) Add(Between(0x1DC0, 0x1DFF), text);
    }
  }
  void InvalidBytes(std::string* text) {
    static constexpr std::string_view kForms[] = {
        "\xC0\x80", "\xE0\x80\xAF", "\xED\xA0\x80", "\xE4\xBD", "\xF0\x9F\x98", "\xC1\xBF", "\xFF"};
    if (Below(2) == 0) {
      *text += kForms[Below(std::size(kForms))];
    } else {
      for (size_t n = 1 + Below(4); n > 0; --n) *text += static_cast<char>(0x80 + Below(0x80));
    }
  }

  std::mt19937_64 random_;
};

// Up to `bytes` from files below the folder, spread over all of them in sorted order.
std::string ReadFiles(const fs::path& folder, size_t bytes) {
  constexpr size_t kFromEach = size_t{12} << 10;
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    if (name == "build" || name == ".git") it.disable_recursion_pending();
    if (name.ends_with(".gz") || name.ends_with(".pyc")) continue;
    std::error_code ignored;
    if (!it->is_symlink(ignored) && it->is_regular_file(ignored)) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  const size_t wanted = bytes / kFromEach + 1;
  const size_t stride = std::max<size_t>(1, files.size() / (wanted * 2));
  std::string text;
  for (size_t i = 0; i < files.size() && text.size() < bytes; i += stride) {
    std::ifstream file(files[i], std::ios::binary);
    std::string part(kFromEach, '\0');
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part, 0, static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  }
  if (text.size() > bytes) text.resize(bytes);
  return text;
}

}  // namespace

std::string GenerateText(size_t bytes, uint64_t seed, bool valid_only) {
  return Generator(seed).Text(bytes, valid_only);
}

std::vector<std::string> MakeCorpus(size_t bytes) {
  std::string all = ReadFiles(oracle::SharedFile("captures"), bytes / 20);
  all += ReadFiles(".", bytes / 10);
  all += ReadFiles("/usr/include", bytes / 4);
  all += ReadFiles("/usr/share/doc", bytes / 8);
  all += ReadFiles("/usr/share/locale", bytes / 8);
  all += ReadFiles("/usr/share/i18n", bytes / 20);
  all += ReadFiles("/usr/lib/python3", bytes / 20);
  if (all.size() < bytes) all += GenerateText(bytes - all.size(), 1, false);
  std::vector<std::string> documents;
  std::mt19937_64 random(2);
  for (size_t begin = 0; begin < all.size();) {
    const size_t length = 1 + random() % kDocumentBytes;
    documents.push_back(all.substr(begin, length));
    begin += length;
  }
  return documents;
}

void MakeSafeForOracle(std::string* text) {
  for (size_t i = 0; i < text->size(); ++i) {
    const auto byte = static_cast<uint8_t>((*text)[i]);
    const auto next = i + 1 < text->size() ? static_cast<uint8_t>((*text)[i + 1]) : 0;
    if ((byte >= 0xF5 && byte <= 0xF7) || (byte == 0xF4 && next >= 0x90)) {
      (*text)[i] = static_cast<char>(0xFE);
    }
  }
}

}  // namespace strata::tokenizer
