// Logging to standard error, one line a message, for terminals and for journald.
//
//   LogInfo("arena: ", slots, " slots of ", bytes, " bytes");
//
// Under systemd (JOURNAL_STREAM set) a line starts with the "<N>" syslog priority that journald
// strips; on a terminal it starts with a time stamp and a letter. A RequestScope on the stack adds
// "[request-id]" to every line of this thread, so one request can be followed through all daemons.
// Thread-safe; a line is written by a single write(2), so lines never interleave.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

#include "absl/strings/str_cat.h"

namespace strata {

enum class LogLevel { kDebug = 7, kInfo = 6, kWarning = 4, kError = 3 };  // syslog's numbers

// Messages above this verbosity are dropped; default kInfo.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);

void LogLine(LogLevel level, std::string_view message);

template <typename... Args>
void Log(LogLevel level, const Args&... args) {
  if (LogEnabled(level)) LogLine(level, absl::StrCat(args...));
}
template <typename... Args>
void LogDebug(const Args&... args) {
  Log(LogLevel::kDebug, args...);
}
template <typename... Args>
void LogInfo(const Args&... args) {
  Log(LogLevel::kInfo, args...);
}
template <typename... Args>
void LogWarning(const Args&... args) {
  Log(LogLevel::kWarning, args...);
}
template <typename... Args>
void LogError(const Args&... args) {
  Log(LogLevel::kError, args...);
}

// Names the request that this thread works on, for the life of the object.
class RequestScope {
 public:
  explicit RequestScope(std::string_view request_id);
  ~RequestScope();
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

 private:
  std::string previous_;
};

}  // namespace strata
