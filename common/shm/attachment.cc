#include "common/shm/attachment.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/shm/fd_socket.h"
#include "common/shm/memfd.h"

namespace strata::shm {
namespace {

// A store answers from its event loop within microseconds; a stuck one must not hang us.
constexpr int kHelloSeconds = 5;

absl::StatusOr<ServerHello> Greet(int socket, const Fingerprint& fingerprint,
                                  std::vector<UniqueFd>* fds) {
  const timeval limit{kHelloSeconds, 0};
  if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0) {
    return ErrnoStatus(errno, "cannot set a time limit on the attach socket");
  }
  ClientHello hello;
  hello.fingerprint = fingerprint;
  STRATA_RETURN_IF_ERROR(SendMessage(socket, std::as_bytes(std::span(&hello, 1)), {}));
  ServerHello answer;
  STRATA_ASSIGN_OR_RETURN(
      const size_t length,
      ReceiveMessage(socket, std::as_writable_bytes(std::span(&answer, 1)), fds));
  if (length == 0) return absl::UnavailableError("the expert store closed the attach socket");
  if (length != sizeof(answer) || answer.magic != kMagic) {
    return absl::InvalidArgumentError("the attach socket does not speak the expert plane protocol");
  }
  if (answer.version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the expert store speaks version ", answer.version,
                     " of the expert plane, this program version ", kVersion,
                     "; run both from the same release"));
  }
  if (answer.code != 0) {
    return absl::Status(
        static_cast<absl::StatusCode>(answer.code),
        absl::string_view(answer.error.data(), strnlen(answer.error.data(), answer.error.size())));
  }
  if (fds->size() != kHelloFds) {
    return absl::InvalidArgumentError(
        absl::StrCat("the expert store sent ", fds->size(), " descriptors instead of ", kHelloFds));
  }
  return answer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Attachment>> Attachment::Connect(const std::string& socket_path,
                                                                const Fingerprint& fingerprint) {
  auto attachment = std::unique_ptr<Attachment>(new Attachment);
  STRATA_ASSIGN_OR_RETURN(attachment->socket_, ConnectTo(socket_path));
  std::vector<UniqueFd> fds;
  STRATA_ASSIGN_OR_RETURN(const ServerHello hello,
                          Greet(attachment->socket_.get(), fingerprint, &fds));
  const int arena = fds[0].get();
  const int table = fds[1].get();
  const int block = fds[2].get();
  const bool sealed = hello.sealed_arena != 0;
  STRATA_RETURN_IF_ERROR(CheckSealed(arena, hello.arena_bytes, SealKind::kFixedSize));
  if (sealed) STRATA_RETURN_IF_ERROR(CheckReadOnly(arena));
  STRATA_RETURN_IF_ERROR(CheckSealed(table, hello.table_bytes, SealKind::kOwnerWrites));
  STRATA_RETURN_IF_ERROR(CheckSealed(block, hello.block_bytes, SealKind::kFixedSize));
  STRATA_ASSIGN_OR_RETURN(attachment->arena_,
                          MemoryMap::Shared(arena, hello.arena_bytes, /*writable=*/!sealed));
  STRATA_ASSIGN_OR_RETURN(attachment->table_,
                          MemoryMap::Shared(table, hello.table_bytes, /*writable=*/false));
  STRATA_ASSIGN_OR_RETURN(attachment->block_,
                          MemoryMap::Shared(block, hello.block_bytes, /*writable=*/true));
  attachment->doorbell_ = std::move(fds[3]);
  STRATA_ASSIGN_OR_RETURN(const TableView view, TableView::Open(attachment->table_.bytes(),
                                                                hello.arena_bytes, fingerprint));
  if (BlockLayout::For(view.slots()).bytes != hello.block_bytes) {
    return absl::InvalidArgumentError("the client block's size does not fit the residency table");
  }
  attachment->client_ = ArenaClient(view, attachment->arena_.bytes(),
                                    {attachment->block_.data(), attachment->block_.size()},
                                    attachment->doorbell_.get());
  return attachment;
}

void Attachment::WaitForEnd() {
  pollfd poll_fd{socket_.get(), POLLIN | POLLRDHUP, 0};
  while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
  }
}

void Attachment::Hangup() { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace strata::shm
