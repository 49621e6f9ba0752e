// What is known of a block beside its bytes, and how that is stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/state/block_id.h"

namespace strata::kvstore {

struct BlockRecord {
  state::BlockId parent;
  uint32_t first_token = 0;
  std::vector<uint32_t> tokens;  // the block's own
  uint64_t bytes = 0;            // of its data
  uint64_t checksum = 0;         // XXH3-64 of its data
  uint64_t last_used_ms = 0;     // Unix time
  bool pinned = false;
  state::BlockId root;  // of its conversation: names model, layout and tenant
  state::Lineage lineage = state::Lineage::kExact;
};

// Version byte, the fields above in order (little endian), XXH3-64 of all before.
std::string EncodeRecord(const BlockRecord& record);
// Empty for anything EncodeRecord did not produce.
std::optional<BlockRecord> DecodeRecord(std::string_view bytes);

}  // namespace strata::kvstore
