// What is known of a block beside its bytes, and how that is stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/state/block_id.h"
#include "services/kvstore/segments/record_format.h"

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
  uint32_t uses = 0;  // plans that it was part of
  Extent extent;      // where its data lies; nowhere: in a store of version 2, or not known here
  bool returned = false;    // the conversation it continues had come back
  bool superseded = false;  // its conversation went on differently

  // Bytes it takes on the drive.
  uint64_t footprint() const { return std::max(bytes, extent.bytes); }
};

// Version byte, the fields above in order (little endian), XXH3-64 of all before. It is the value
// of the index, and the description beside the data in the segments; there the extent is left out.
std::string EncodeRecord(const BlockRecord& record);
// Empty for anything EncodeRecord did not produce. Reads version 2 as well, whose data lay in the
// database.
std::optional<BlockRecord> DecodeRecord(std::string_view bytes);

}  // namespace strata::kvstore
