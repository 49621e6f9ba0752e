// Which blocks are pinned, beside the index: what a person asked to keep must not be lost with it.
// A small file that is replaced as a whole.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/state/block_id.h"

#include "absl/status/status.h"

namespace strata::kvstore {

// Of the store in this folder: beside the segments, which are kept when an index is moved aside.
inline std::string PinsPath(const std::string& store) { return store + "/segments/pins"; }

// Empty if there is no such file or it is damaged.
std::vector<state::BlockId> ReadPins(const std::string& path);

// After a crash at any point the file holds these or what it held before.
absl::Status WritePins(const std::string& path, std::span<const state::BlockId> ids);

}  // namespace strata::kvstore
