// Unix sockets that carry whole messages (SOCK_SEQPACKET) and file descriptors (SCM_RIGHTS).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::shm {

inline constexpr size_t kMaxPassedFds = 8;

// Listens on `path` with the given permission bits; non-blocking. A socket file left over by a dead
// process is replaced; a living listener is an AlreadyExists error.
absl::StatusOr<UniqueFd> ListenOn(const std::string& path, mode_t mode);

// Blocking connection. Unavailable when nobody listens.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path);

absl::Status SendMessage(int socket, std::span<const std::byte> bytes, std::span<const int> fds);

// One message of at most buffer.size() bytes and the descriptors that came with it (owned, whatever
// happens). Returns its length; 0 = the peer closed. Unavailable when a non-blocking socket is
// empty.
absl::StatusOr<size_t> ReceiveMessage(int socket, std::span<std::byte> buffer,
                                      std::vector<UniqueFd>* fds);

}  // namespace strata::shm
