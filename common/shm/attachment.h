// A client's connection to a store in another process: the hello exchange, the mappings and the
// ArenaClient over them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/base/memory_map.h"
#include "common/base/unique_fd.h"
#include "common/shm/arena_client.h"
#include "common/shm/protocol.h"

#include "absl/status/statusor.h"

namespace strata::shm {

class Attachment {
 public:
  // Connects to the store's attach socket, checks sizes, seals and every record of the table, and
  // maps the regions. Blocks at most a few seconds. Unavailable: nobody listens (retry later);
  // FailedPrecondition: the store serves another model; ResourceExhausted: it has too many clients.
  static absl::StatusOr<std::unique_ptr<Attachment>> Connect(const std::string& socket_path,
                                                             const Fingerprint& fingerprint);

  // Valid as long as this object. After the store's death the mappings stay readable, nothing
  // changes in them any more, and requests are never answered.
  ArenaClient& client() { return client_; }
  const MemoryMap& arena() const { return arena_; }
  // The own client block, as the store sees it.
  std::span<std::byte> block() { return {block_.data(), block_.size()}; }

  // Blocks until the store closes the connection (it died or dropped us) or Hangup() was called.
  void WaitForEnd();
  // Ends the connection, so that a WaitForEnd() on another thread returns.
  void Hangup();

 private:
  Attachment() = default;
  UniqueFd socket_;
  MemoryMap arena_;
  MemoryMap table_;
  MemoryMap block_;
  UniqueFd doorbell_;
  ArenaClient client_;
};

}  // namespace strata::shm
