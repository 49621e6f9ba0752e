#include "common/shm/attach_server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/shm/fd_socket.h"
#include "common/shm/memfd.h"

namespace strata::shm {
namespace {

absl::Status ReadHello(int socket, const SharedRegions& regions) {
  ClientHello hello;
  std::vector<UniqueFd> unwanted;
  STRATA_ASSIGN_OR_RETURN(
      const size_t length,
      ReceiveMessage(socket, std::as_writable_bytes(std::span(&hello, 1)), &unwanted));
  if (length != sizeof(hello) || hello.magic != kMagic || !unwanted.empty()) {
    return absl::InvalidArgumentError("not a hello of the expert plane protocol");
  }
  if (hello.version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the client speaks version ", hello.version, " of the expert plane, the store version ",
        kVersion, "; run both from the same release"));
  }
  if (hello.fingerprint != regions.fingerprint) {
    return absl::FailedPreconditionError("the expert store serves another model than the client's");
  }
  return absl::OkStatus();
}

absl::Status Admit(int socket, const SharedRegions& regions, AttachedClient* client) {
  client->doorbell = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!client->doorbell.valid()) return ErrnoStatus(errno, "cannot create an eventfd");
  const uint64_t block_bytes = BlockLayout::For(regions.slots).bytes;
  STRATA_ASSIGN_OR_RETURN(const UniqueFd block, CreateMemfd("strata-client", block_bytes));
  // The size is sealed, or the client could shrink the block under us.
  STRATA_RETURN_IF_ERROR(Seal(block.get(), SealKind::kFixedSize));
  STRATA_ASSIGN_OR_RETURN(client->block, MemoryMap::Shared(block.get(), block_bytes, true));
  client->peer = std::make_unique<ClientPeer>(std::span(client->block.data(), client->block.size()),
                                              regions.slots, regions.experts);
  ServerHello hello;
  hello.arena_bytes = regions.arena_bytes;
  hello.table_bytes = regions.table_bytes;
  hello.block_bytes = block_bytes;
  hello.sealed_arena = regions.sealed_arena ? 1 : 0;
  const int fds[kHelloFds] = {regions.arena_fd, regions.table_fd, block.get(),
                              client->doorbell.get()};
  return SendMessage(socket, std::as_bytes(std::span(&hello, 1)), fds);
}

}  // namespace

absl::StatusOr<AttachedClient> AnswerHello(UniqueFd socket, const SharedRegions& regions) {
  absl::Status status = ReadHello(socket.get(), regions);
  AttachedClient client;
  if (status.ok()) status = Admit(socket.get(), regions, &client);
  if (!status.ok()) {
    Refuse(socket.get(), status);
    return status;
  }
  client.socket = std::move(socket);
  return client;
}

void Refuse(int socket, const absl::Status& reason) {
  // A hello left unread would turn the close that follows into a reset, and the reason be lost.
  char unread[sizeof(ClientHello)];
  while (recv(socket, unread, sizeof(unread), MSG_DONTWAIT) > 0) {
  }
  ServerHello hello;
  hello.code = static_cast<uint32_t>(reason.code());
  const size_t length = std::min(reason.message().size(), hello.error.size() - 1);
  std::memcpy(hello.error.data(), reason.message().data(), length);
  // The peer may be gone; then nobody needs the reason.
  SendMessage(socket, std::as_bytes(std::span(&hello, 1)), {}).IgnoreError();
}

}  // namespace strata::shm
