// One rendering's bookkeeping: its heap, and the limits that stop a hostile or broken template.
//
// Work is counted in units of roughly one evaluated expression node or 256 bytes copied or scanned,
// so nested loops and giant strings run into the same bound. Every function that can do more than a
// fixed amount of work says so beforehand with Work, Scan or Room; the error ends the rendering.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "services/gateway/template/render_limits.h"
#include "services/gateway/template/value.h"

#include "absl/status/status.h"

namespace strata::gateway::jinja {

// A container nested deeper than this is refused where it would be walked recursively.
inline constexpr int kMaxValueDepth = 100;

class Runtime {
 public:
  Runtime(const RenderLimits& limits, int64_t now_seconds);

  Heap& heap() { return heap_; }
  const RenderLimits& limits() const { return limits_; }
  int64_t now_seconds() const { return now_seconds_; }

  absl::Status Work(uint64_t units);
  // `bytes` of text are about to be read or written.
  absl::Status Scan(size_t bytes) { return bytes < 256 ? absl::OkStatus() : Work(bytes / 256); }
  // Whether `bytes` more would stay within the memory limit.
  absl::Status Fits(size_t bytes) const;
  // `bytes` are about to be allocated and filled: they must fit, and cost work.
  absl::Status Room(size_t bytes);

  absl::Status Enter();
  void Leave() { --depth_; }

 private:
  absl::Status CheckSlowLimits();

  const RenderLimits limits_;
  const int64_t now_seconds_;
  const std::chrono::steady_clock::time_point deadline_;
  uint64_t work_ = 0;
  uint64_t next_check_ = 0;
  size_t depth_ = 0;
  Heap heap_;
};

// Counts one level of nesting while it lives; check status() before going deeper.
class DepthScope {
 public:
  explicit DepthScope(Runtime& runtime) : runtime_(runtime), status_(runtime.Enter()) {}
  ~DepthScope() { runtime_.Leave(); }
  DepthScope(const DepthScope&) = delete;
  DepthScope& operator=(const DepthScope&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  Runtime& runtime_;
  const absl::Status status_;
};

}  // namespace strata::gateway::jinja
