#include "common/shm/fd_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "common/base/status.h"

namespace strata::shm {
namespace {

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' must have 1 to ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

absl::StatusOr<UniqueFd> NewSocket(int flags) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a Unix socket");
  return fd;
}

// A peer that went away is an ordinary event here, and the caller tries again.
absl::Status SocketError(int error, std::string_view what) {
  if (error == ECONNRESET || error == EPIPE) {
    return absl::UnavailableError(absl::StrCat(A(what), ": the other side closed it"));
  }
  return ErrnoStatus(error, what);
}

}  // namespace

absl::StatusOr<UniqueFd> ListenOn(const std::string& path, mode_t mode) {
  STRATA_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  struct stat info;
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "'", path, "' exists and is not a socket; remove it or choose another path"));
    }
    if (ConnectTo(path).ok()) {
      return absl::AlreadyExistsError(
          absl::StrCat("another process listens on '", path, "'; stop it first"));
    }
    unlink(path.c_str());
  }
  STRATA_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(SOCK_NONBLOCK));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot bind '", path, "'"));
  }
  // Until listen() nobody can connect, so the mode is in force from the first connection on.
  if (chmod(path.c_str(), mode) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot set the mode of '", path, "'"));
  }
  if (listen(fd.get(), 16) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot listen on '", path, "'"));
  }
  return fd;
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  STRATA_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const std::string what = absl::StrCat("cannot connect to '", path, "'");
    if (errno == ENOENT)
      return absl::UnavailableError(absl::StrCat(what, ": nobody listens there"));
    return ErrnoStatus(errno, what);
  }
  return fd;
}

absl::Status SendMessage(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (fds.size() > kMaxPassedFds) return absl::InvalidArgumentError("too many descriptors");
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return SocketError(errno, "cannot send on the attach socket");
  return absl::OkStatus();
}

absl::StatusOr<size_t> ReceiveMessage(int socket, std::span<std::byte> buffer,
                                      std::vector<UniqueFd>* fds) {
  iovec data{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return SocketError(errno, "cannot receive on the attach socket");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds->emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::InvalidArgumentError("message on the attach socket is longer than the protocol's");
  }
  return static_cast<size_t>(got);
}

}  // namespace strata::shm
