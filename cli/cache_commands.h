// What `strata cache` does with a kvstore, apart from finding it. Includes gRPC headers.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>

#include "strata/v1/kvstore.grpc.pb.h"

#include "absl/status/status.h"

namespace strata::cli {

struct CacheContext {
  v1::KvStore::StubInterface* kvstore;
  std::ostream* out;
  // The text of tokens; empty where the model is not known.
  std::function<std::string(std::span<const uint32_t>)> text;
  uint64_t now_ms = 0;
};

// list | show ID | pin ID | unpin ID | drop ID|all | verify | gc, where ID is the beginning of one
// that list prints. InvalidArgument for anything else, NotFound for an unknown ID.
absl::Status RunCacheCommand(const CacheContext& context, std::span<const std::string> arguments);

}  // namespace strata::cli
