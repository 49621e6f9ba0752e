// Where blocks of sequence state survive a restart. The engine sees this interface only; the gRPC
// client of kvstore implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/state/block_id.h"
#include "strata/v1/kvstore.pb.h"

#include "absl/functional/function_ref.h"

namespace strata::compute {

struct SavedBlock {
  std::string tenant;
  state::BlockId parent;
  state::BlockId id;
  state::Lineage lineage = state::Lineage::kExact;
  uint32_t first_token = 0;
  std::vector<uint32_t> tokens;
  std::vector<std::byte> bytes;
  bool checkpoint = false;  // of fewer tokens than a block's: what is behind the last whole one
};

class StateStore {
 public:
  virtual ~StateStore() = default;

  // Fetches the plan's blocks in order, the prefix's, then the runs', then the tail, and hands each
  // to `take`; ends early when `take` returns false, when a block is gone, or when the store does
  // not answer. Blocks the calling thread.
  virtual void Restore(const v1::RestorePlan& plan, std::string_view request_id,
                       absl::FunctionRef<bool(std::vector<std::byte> block)> take) = 0;

  // Takes over a block or checkpoint and returns at once. Saved state is a cache: when the store is
  // slow or away, blocks are dropped and counted, never waited for.
  virtual void Save(SavedBlock block) = 0;

  virtual bool connected() const = 0;
};

}  // namespace strata::compute
