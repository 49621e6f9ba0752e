#include "common/base/bus_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata {
namespace {

// Everything below runs in a signal handler: no allocation, no locks, no stdio.

void Say(const char* text, size_t bytes) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, bytes);
}

uintptr_t TakeHex(const char** at) {
  uintptr_t value = 0;
  for (;; ++*at) {
    const char c = **at;
    if (c >= '0' && c <= '9') {
      value = 16 * value + static_cast<uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = 16 * value + static_cast<uintptr_t>(c - 'a' + 10);
    } else {
      return value;
    }
  }
}

// Of a line of /proc/self/maps ("from-to access offset device inode path"): the path if `address`
// lies in it.
const char* PathIfInside(const char* line, uintptr_t address) {
  const char* at = line;
  const uintptr_t from = TakeHex(&at);
  if (*at++ != '-') return nullptr;
  const uintptr_t to = TakeHex(&at);
  return address >= from && address < to ? std::strchr(at, '/') : nullptr;
}

// Writes the path of the file that is mapped at `address`; false if there is none.
bool SayPath(uintptr_t address) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  static char line[4096 + 128];  // a longer path is cut
  size_t length = 0;
  bool found = false;
  for (char c; !found && read(maps, &c, 1) == 1;) {
    if (c != '\n') {
      if (length < sizeof(line) - 1) line[length++] = c;
      continue;
    }
    line[length] = '\0';
    length = 0;
    if (const char* path = PathIfInside(line, address)) {
      Say(path, std::strlen(path));
      found = true;
    }
  }
  close(maps);
  return found;
}

void OnBusError(int /*signal*/, siginfo_t* info, void* /*context*/) {
  constexpr char kBefore[] = "a page of the mapped file '";
  constexpr char kUnknown[] = "(unknown)";
  constexpr char kAfter[] =
      "' cannot be read: the file was cut while it was in use, or its drive failed; put the "
      "complete file back and start again\n";
  Say(kBefore, sizeof(kBefore) - 1);
  if (!SayPath(reinterpret_cast<uintptr_t>(info->si_addr))) Say(kUnknown, sizeof(kUnknown) - 1);
  Say(kAfter, sizeof(kAfter) - 1);
  // Returning repeats the access, which ends the process: the handler is gone (SA_RESETHAND).
}

}  // namespace

void ExplainBusErrors() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace strata
