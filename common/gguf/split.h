// Names of split models: "NAME-00002-of-00003.gguf" is shard 2 of 3 (counted from 1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::gguf {

struct ShardName {
  std::string prefix;  // everything before "-00002-of-00003.gguf", with the folder
  uint32_t number = 0;
  uint32_t count = 0;
};

// Empty unless `path` follows the pattern with 1 <= number <= count <= 9999.
std::optional<ShardName> ParseShardName(std::string_view path);

std::string ShardPath(std::string_view prefix, uint32_t number, uint32_t count);

// Those of all the shards' paths that do not exist.
std::vector<std::string> MissingShards(std::string_view prefix, uint32_t count);

}  // namespace strata::gguf
