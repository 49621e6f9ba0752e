#include "common/base/status.h"

#include <cerrno>
#include <system_error>

namespace strata {

absl::Status ErrnoStatus(int error_number, std::string_view what) {
  const std::string message =
      absl::StrCat(A(what), ": ", std::generic_category().message(error_number));
  switch (error_number) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case EEXIST:
    case EADDRINUSE:
      return absl::AlreadyExistsError(message);
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    case EINVAL:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    case ENOSYS:
    case EOPNOTSUPP:
      return absl::UnimplementedError(message);
    case ETIMEDOUT:
      return absl::DeadlineExceededError(message);
    case ECONNREFUSED:
    case EAGAIN:
    case EINTR:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace strata
