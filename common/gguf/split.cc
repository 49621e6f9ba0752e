#include "common/gguf/split.h"

#include <unistd.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/gguf/format.h"

#include "absl/strings/str_format.h"

namespace strata::gguf {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr size_t kDigits = 5;

// Removes five digits from the end of `text`.
std::optional<uint32_t> TakeNumber(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kDigits);
  uint32_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  text.remove_suffix(kDigits);
  return number;
}

bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::optional<ShardName> ParseShardName(std::string_view path) {
  if (!TakeSuffix(path, kSuffix)) return std::nullopt;
  const std::optional<uint32_t> count = TakeNumber(path);
  if (!count || !TakeSuffix(path, kOf)) return std::nullopt;
  const std::optional<uint32_t> number = TakeNumber(path);
  if (!number || !TakeSuffix(path, "-")) return std::nullopt;
  if (*number < 1 || *number > *count || *count > kMaxShards) return std::nullopt;
  return ShardName{std::string(path), *number, *count};
}

std::string ShardPath(std::string_view prefix, uint32_t number, uint32_t count) {
  return absl::StrFormat("%s-%05d-of-%05d.gguf", A(prefix), number, count);
}

std::vector<std::string> MissingShards(std::string_view prefix, uint32_t count) {
  std::vector<std::string> missing;
  for (uint32_t i = 1; i <= count; ++i) {
    std::string path = ShardPath(prefix, i, count);
    if (access(path.c_str(), F_OK) != 0) missing.push_back(std::move(path));
  }
  return missing;
}

}  // namespace strata::gguf
