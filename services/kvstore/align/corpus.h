// The stored text as the aligner sees it: a forest of blocks of token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/state/block_id.h"

namespace strata::kvstore {

using state::BlockId;

struct CorpusBlock {
  BlockId parent;            // the block before it in its conversation; may not be stored
  uint32_t first_token = 0;  // position of its first token in its conversation
  std::span<const uint32_t> tokens;
};

class Corpus {
 public:
  virtual ~Corpus() = default;
  // Empty if there is no such block, or if its state must not be moved elsewhere.
  virtual std::optional<CorpusBlock> Find(const BlockId& id) const = 0;
  // The blocks that continue `id`, of whatever kind: those that Find does not know are skipped.
  virtual std::span<const BlockId> Children(const BlockId& id) const = 0;
};

}  // namespace strata::kvstore
