// What is known of a block or checkpoint beside its bytes, and how that is stored.
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

enum class Kind : uint8_t {
  kBlock,       // rows of as many tokens as any block has
  kTail,        // rows of fewer tokens, behind the end of a block: a checkpoint that can be cut
  kCheckpoint,  // with components that are valid at its end only: used as a whole or not at all
};

// Most that BlockRecord::older counts.
inline constexpr uint8_t kOldest = 7;

struct BlockRecord {
  state::BlockId parent;
  uint32_t first_token = 0;
  std::vector<uint32_t> tokens;  // the block's own; a checkpoint may have none
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
  Kind kind = Kind::kBlock;
  uint8_t older = 0;  // checkpoints that followed in its conversation since it was last used

  uint64_t end() const { return first_token + tokens.size(); }
  // Bytes it takes on the drive.
  uint64_t footprint() const { return std::max(bytes, extent.bytes); }
};

// Version byte, the fields above in order (little endian), XXH3-64 of all before. It is the value
// of the index, and the description beside the data in the segments; there the extent is left out.
std::string EncodeRecord(const BlockRecord& record);
// Empty for anything EncodeRecord did not produce. Reads version 3 as well, which knew blocks only,
// and version 2, whose data lay in the database.
std::optional<BlockRecord> DecodeRecord(std::string_view bytes);

}  // namespace strata::kvstore
