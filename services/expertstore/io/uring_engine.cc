#include "services/expertstore/io/uring_engine.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::expertstore {

absl::StatusOr<std::unique_ptr<UringEngine>> UringEngine::Create(
    const ModelFiles& files, std::span<const std::span<std::byte>> buffers, uint32_t depth) {
  auto engine = std::unique_ptr<UringEngine>(new UringEngine(files, depth));
  if (const int error = io_uring_queue_init(depth, &engine->ring_, 0); error < 0) {
    return ErrnoStatus(-error, "cannot create an io_uring");
  }
  engine->open_ = true;
  // Two descriptors a file: 2i past the page cache (-1: an empty place), 2i + 1 through it.
  std::vector<int> fds;
  for (uint32_t file = 0; file < files.size(); ++file) {
    fds.push_back(files.direct_fd(file));
    fds.push_back(files.buffered_fd(file));
  }
  if (const int error =
          io_uring_register_files(&engine->ring_, fds.data(), static_cast<unsigned>(fds.size()));
      error < 0) {
    return ErrnoStatus(-error, "cannot register the model's files with io_uring");
  }
  engine->RegisterBuffers(buffers);
  return engine;
}

UringEngine::~UringEngine() {
  if (open_) io_uring_queue_exit(&ring_);
}

void UringEngine::RegisterBuffers(std::span<const std::span<std::byte>> buffers) {
  std::vector<iovec> pieces;
  for (const std::span<std::byte> buffer : buffers) {
    pieces.push_back({buffer.data(), buffer.size()});
  }
  if (pieces.empty()) return;
  const int error =
      io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
  if (error < 0) {
    LogWarning("reads use unregistered buffers (more CPU time per read): ",
               ErrnoStatus(-error, "io_uring_register_buffers").message(),
               "; raising the memory lock limit (ulimit -l, LimitMEMLOCK=) allows registering");
    return;
  }
  buffers_.assign(buffers.begin(), buffers.end());
}

void UringEngine::ReleaseBuffers() {
  if (buffers_.empty()) return;
  Flush();  // what is queued names registered buffers
  buffers_.clear();
  if (const int error = io_uring_unregister_buffers(&ring_); error < 0) {
    LogWarning("the read buffers stay registered, and with them memory that should be given back: ",
               ErrnoStatus(-error, "io_uring_unregister_buffers").message());
  }
}

int UringEngine::BufferOf(const std::byte* dest, uint32_t bytes) const {
  const auto after = std::upper_bound(
      buffers_.begin(), buffers_.end(), dest,
      [](const std::byte* at, const std::span<std::byte> piece) { return at < piece.data(); });
  if (after == buffers_.begin()) return -1;
  const std::span<std::byte> piece = *(after - 1);
  if (dest + bytes > piece.data() + piece.size()) return -1;
  return static_cast<int>(after - buffers_.begin() - 1);
}

void UringEngine::Queue(const ReadOp& op) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {  // the submission ring is full of queued reads: start them
    Flush();
    sqe = io_uring_get_sqe(&ring_);
  }
  const int file = static_cast<int>(2 * op.file + (op.direct ? 0 : 1));
  const int buffer = BufferOf(op.dest, op.bytes);
  if (buffer >= 0) {
    io_uring_prep_read_fixed(sqe, file, op.dest, op.bytes, op.offset, buffer);
  } else {
    io_uring_prep_read(sqe, file, op.dest, op.bytes, op.offset);
  }
  sqe->flags |= IOSQE_FIXED_FILE;
  sqe->user_data = op.tag;
  ++open_reads_;
}

void UringEngine::Flush() {
  while (io_uring_sq_ready(&ring_) > 0) {
    const int submitted = io_uring_submit(&ring_);
    if (submitted > 0 || submitted == -EINTR) continue;
    // Out of kernel memory for the moment. If other reads are under way, their end brings us back
    // to Reap(), which tries again; otherwise nothing would.
    if (open_reads_ > io_uring_sq_ready(&ring_)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

size_t UringEngine::Reap(std::span<ReadResult> results) {
  size_t count = 0;
  io_uring_cqe* cqe;
  while (count < results.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
    results[count++] = {cqe->user_data, cqe->res};
    io_uring_cqe_seen(&ring_, cqe);
  }
  open_reads_ -= static_cast<uint32_t>(count);
  if (count > 0) Flush();
  return count;
}

}  // namespace strata::expertstore
