// The store's side of the attach socket: answers a client's hello and makes its block.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/memory_map.h"
#include "common/base/unique_fd.h"
#include "common/shm/client_peer.h"
#include "common/shm/protocol.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::shm {

// The regions that every client gets, sealed already; the descriptors belong to the store.
struct SharedRegions {
  int arena_fd = -1;  // a read-only one, if `sealed_arena`
  int table_fd = -1;
  uint64_t arena_bytes = 0;
  uint64_t table_bytes = 0;
  bool sealed_arena = true;
  Fingerprint fingerprint{};
  uint32_t slots = 0;
  uint32_t experts = 0;
};

// A client as the store holds it. Destroying it drops the block and with it every pin.
struct AttachedClient {
  UniqueFd socket;    // readable or hung up: the client is gone or breaks the protocol
  UniqueFd doorbell;  // eventfd, rung by the client
  MemoryMap block;
  std::unique_ptr<ClientPeer> peer;
};

// Reads the hello from a connected non-blocking socket that is readable, and answers it. An error
// was told to the client, too, where possible.
absl::StatusOr<AttachedClient> AnswerHello(UniqueFd socket, const SharedRegions& regions);

// Tells a client why it is turned away.
void Refuse(int socket, const absl::Status& reason);

}  // namespace strata::shm
