#include "common/gguf/recognize.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/gguf/format.h"

namespace strata::gguf {
namespace {

struct Signature {
  std::string_view prefix;
  std::string_view meaning;
};

constexpr auto kSignatures = std::to_array<Signature>({
    {"version https://git-lfs",
     "a git-LFS pointer, not the file it points to; run 'git lfs pull' "
     "or download the file itself"},
    {{"PK\x03\x04", 4}, "a zip archive or PyTorch checkpoint; convert the model to GGUF"},
    {{"\x80\x02", 2}, "a Python pickle (PyTorch checkpoint); convert the model to GGUF"},
    {{"\x1f\x8b", 2}, "a gzip archive; unpack it first"},
    {{"\x28\xb5\x2f\xfd", 4}, "a zstd archive; unpack it first"},
    {{"\xfd"
      "7zXZ",
      5},
     "an xz archive; unpack it first"},
    {{"7z\xbc\xaf", 4}, "a 7-zip archive; unpack it first"},
    {{"\x89HDF", 4}, "an HDF5 file; convert the model to GGUF"},
    {"lmgg", "a GGML file of 2023, from before GGUF; convert it"},
    {"fmgg", "a GGMF file of 2023, from before GGUF; convert it"},
    {"tjgg", "a GGJT file of 2023, from before GGUF; convert it"},
});

bool StartsWithIgnoringCase(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char l, char t) {
           return l == std::tolower(static_cast<unsigned char>(t));
         });
}

std::string_view SkipBlanks(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t start = text.find_first_not_of(" \t\r\n");
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

// safetensors: u64 length of a JSON header, then the header.
bool LooksLikeSafetensors(std::string_view head, uint64_t file_bytes) {
  if (head.size() < 10) return false;
  uint64_t header = 0;
  std::memcpy(&header, head.data(), sizeof(header));
  return header < file_bytes && head[8] == '{' && head[9] == '"';
}

std::string_view Meaning(std::string_view head, uint64_t file_bytes) {
  for (const Signature& signature : kSignatures) {
    if (head.starts_with(signature.prefix)) return signature.meaning;
  }
  if (LooksLikeSafetensors(head, file_bytes)) {
    return "a safetensors file; convert the model to GGUF";
  }
  const std::string_view text = SkipBlanks(head);
  if (StartsWithIgnoringCase(text, "<!doctype") || StartsWithIgnoringCase(text, "<html")) {
    return "a web page (HTML), not a model; the download link led to a page: use the direct link "
           "and check that you are logged in";
  }
  if (text.starts_with('<')) return "an XML document, perhaps a server's error message";
  if (text.starts_with('{') || text.starts_with('[')) {
    return "a JSON document, perhaps a server's error message";
  }
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) {
    return "empty space: its first bytes are zero, so the download reserved the space but did not "
           "fill it";
  }
  return {};
}

}  // namespace

absl::Status CheckIsGguf(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 512));
  if (head.starts_with(kMagic)) return absl::OkStatus();
  if (head.empty()) return absl::InvalidArgumentError("the file is empty; download it again");
  if (kMagic.starts_with(head)) {
    return absl::OutOfRangeError(absl::StrCat("the file is truncated to ", head.size(), " bytes"));
  }
  if (const std::string_view meaning = Meaning(head, bytes.size()); !meaning.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not a GGUF file but ", A(meaning)));
  }
  std::string shown;
  for (const char c : head.substr(0, 8)) {
    absl::StrAppend(&shown, shown.empty() ? "" : " ",
                    absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("not a GGUF file: it starts with the bytes ", shown, " instead of 'GGUF'"));
}

}  // namespace strata::gguf
