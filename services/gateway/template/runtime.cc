#include "services/gateway/template/runtime.h"

#include "common/base/status.h"

namespace strata::gateway::jinja {
namespace {
constexpr uint64_t kUnitsBetweenChecks = 1024;
}

Runtime::Runtime(const RenderLimits& limits, int64_t now_seconds)
    : limits_(limits),
      now_seconds_(now_seconds),
      deadline_(std::chrono::steady_clock::now() +
                std::chrono::milliseconds(limits.max_milliseconds)) {}

absl::Status Runtime::Work(uint64_t units) {
  work_ += units;
  if (work_ > limits_.max_work) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the template does too much work (limit ", limits_.max_work, " steps)"));
  }
  if (work_ < next_check_) return absl::OkStatus();
  next_check_ = work_ + kUnitsBetweenChecks;
  return CheckSlowLimits();
}

absl::Status Runtime::CheckSlowLimits() {
  STRATA_RETURN_IF_ERROR(Fits(0));
  if (std::chrono::steady_clock::now() > deadline_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the template runs too long (limit ", limits_.max_milliseconds, " ms)"));
  }
  return absl::OkStatus();
}

absl::Status Runtime::Fits(size_t bytes) const {
  if (bytes <= limits_.max_live_bytes && heap_.live_bytes() <= limits_.max_live_bytes - bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("the template needs too much memory (limit ",
                                                   limits_.max_live_bytes, " bytes)"));
}

absl::Status Runtime::Room(size_t bytes) {
  STRATA_RETURN_IF_ERROR(Fits(bytes));
  return Scan(bytes);
}

absl::Status Runtime::Enter() {
  ++depth_;
  if (depth_ <= limits_.max_depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the template nests or recurses deeper than ", limits_.max_depth, " levels"));
}

}  // namespace strata::gateway::jinja
