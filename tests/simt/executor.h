// Runs the blocks of a kernel, each with one fiber per GPU thread.
//
// Threads run one after the other; one stops only where it must wait for others (SyncBlock, or an
// exchange within the warp). The order is fixed, so a run is repeatable; running forward and in
// reverse makes a result that depends on the order, as a missing barrier does, differ between the
// two. A wait that can never end is an error that says who waits where.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/fiber.h"
#include "tests/simt/source_place.h"

namespace strata::simt {

enum class Schedule { kForward, kReverse };

struct Grid {
  unsigned blocks_x = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;  // a multiple of the warp
  size_t shared_bytes = 0;
};

class Executor {
 public:
  static constexpr unsigned kMaxWarp = 64;
  static constexpr unsigned kMaxThreads = 1024;  // as on GPUs

  explicit Executor(unsigned warp_size);
  ~Executor();

  void set_schedule(Schedule schedule) { schedule_ = schedule; }

  // Runs `body` once for each thread of each block. Empty, or what went wrong; the rest of the
  // kernel is then abandoned. Shared memory starts as bytes of 0xff (floats: NaN).
  std::string Run(const Grid& grid, const std::function<void()>& body);

  // --- for use inside a body ---------------------------------------------------------------
  static Executor& Running();
  unsigned thread() const;
  unsigned block_x() const { return block_x_; }
  unsigned block_y() const { return block_y_; }
  unsigned block_threads() const { return grid_.threads; }
  std::byte* shared() { return shared_.get(); }

  void SyncBlock(SourcePlace where);
  // Gives `value` to the other lanes of the warp and waits until all have done so. The result holds
  // everyone's values, indexed by lane, and is valid until this lane's next exchange but one.
  const std::array<uint64_t, kMaxWarp>& Exchange(uint64_t value, SourcePlace where);

 private:
  // A meeting point of all threads of a block or of a warp.
  struct Barrier {
    unsigned expected = 0;
    unsigned arrived = 0;
    uint64_t generation = 0;  // counts completed meetings
    SourcePlace where;
    unsigned first_thread = 0;
  };
  struct Warp {
    Barrier barrier;
    std::array<std::array<uint64_t, kMaxWarp>, 2> slots;  // by the parity of the generation
  };
  struct Thread;

  void RunBlock();
  void Arrive(Barrier& barrier, SourcePlace where);
  void Fail(const std::string& message);
  std::string DescribeWaiting() const;
  static void ThreadMain(void* executor);

  const unsigned warp_size_;
  Schedule schedule_ = Schedule::kForward;
  Grid grid_;
  const std::function<void()>* body_ = nullptr;
  unsigned block_x_ = 0;
  unsigned block_y_ = 0;
  std::unique_ptr<std::byte[]> shared_;
  std::vector<std::unique_ptr<Thread>> threads_;  // kept from run to run
  std::vector<Warp> warps_;
  Barrier block_barrier_;
  Thread* running_thread_ = nullptr;
  std::string error_;
};

}  // namespace strata::simt
