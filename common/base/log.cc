#include "common/base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace strata {
namespace {

std::atomic<int> g_max_level{static_cast<int>(LogLevel::kInfo)};

std::string& CurrentRequest() {
  thread_local std::string id;
  return id;
}

bool UnderJournald() {
  static const bool value = std::getenv("JOURNAL_STREAM") != nullptr;
  return value;
}

char Letter(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 'D';
    case LogLevel::kInfo:
      return 'I';
    case LogLevel::kWarning:
      return 'W';
    case LogLevel::kError:
      return 'E';
  }
  return '?';
}

}  // namespace

void SetLogLevel(LogLevel level) { g_max_level.store(static_cast<int>(level)); }

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) <= g_max_level.load(std::memory_order_relaxed);
}

void LogLine(LogLevel level, std::string_view message) {
  std::string line;
  line.reserve(message.size() + 64);
  if (UnderJournald()) {
    absl::StrAppend(&line, "<", static_cast<int>(level), ">");
  } else {
    timeval now;
    gettimeofday(&now, nullptr);
    tm local;
    localtime_r(&now.tv_sec, &local);
    char stamp[32];
    std::snprintf(stamp, sizeof(stamp), "%c%02d:%02d:%02d.%03d ", Letter(level), local.tm_hour,
                  local.tm_min, local.tm_sec, static_cast<int>(now.tv_usec / 1000));
    line += stamp;
  }
  if (const std::string& id = CurrentRequest(); !id.empty()) absl::StrAppend(&line, "[", id, "] ");
  // A message must stay one record: a line break inside it becomes a visible mark.
  for (const char c : message) line += c == '\n' ? '|' : c;
  line += '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

RequestScope::RequestScope(std::string_view request_id)
    : previous_(std::exchange(CurrentRequest(), std::string(request_id))) {}

RequestScope::~RequestScope() { CurrentRequest() = std::move(previous_); }

}  // namespace strata
