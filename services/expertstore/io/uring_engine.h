// Reads through io_uring: registered files, and registered buffers where the memory lock limit
// allows (saves pinning the pages anew for every read).
#pragma once

#include <liburing.h>

#include <memory>
#include <span>
#include <vector>

#include "services/expertstore/io/model_files.h"
#include "services/expertstore/io/read_engine.h"

#include "absl/status/statusor.h"

namespace strata::expertstore {

class UringEngine : public ReadEngine {
 public:
  // `buffers`: memory that reads will go to, in pieces of at most 1 GiB, ascending; a read lies
  // inside one piece. `files` must outlive the engine. Unimplemented or PermissionDenied: this
  // kernel or container has no io_uring (use ThreadEngine).
  static absl::StatusOr<std::unique_ptr<UringEngine>> Create(
      const ModelFiles& files, std::span<const std::span<std::byte>> buffers, uint32_t depth);
  ~UringEngine() override;
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  uint32_t depth() const override { return depth_; }
  void Queue(const ReadOp& op) override;
  void Flush() override;
  size_t Reap(std::span<ReadResult> results) override;
  void ReleaseBuffers() override;
  int fd() const override { return ring_.ring_fd; }
  const char* name() const override { return "io_uring"; }

  bool registered_buffers() const { return !buffers_.empty(); }

 private:
  UringEngine(const ModelFiles& files, uint32_t depth) : files_(files), depth_(depth) {}
  void RegisterBuffers(std::span<const std::span<std::byte>> buffers);
  // Index of the registered piece that holds [dest, dest + bytes), or -1.
  int BufferOf(const std::byte* dest, uint32_t bytes) const;

  const ModelFiles& files_;
  const uint32_t depth_;
  io_uring ring_{};
  bool open_ = false;
  uint32_t open_reads_ = 0;                    // queued and not reaped
  std::vector<std::span<std::byte>> buffers_;  // registered ones
};

}  // namespace strata::expertstore
