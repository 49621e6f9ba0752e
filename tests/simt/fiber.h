// A function with a stack of its own that can be left in the middle and continued later.
//
// Everything happens on one OS thread. Destroying a suspended fiber abandons its stack: destructors
// of objects on it do not run, which is fine for GPU kernels.
#pragma once

#include <cstddef>
#include <memory>

#include "common/base/memory_map.h"

namespace strata::simt {

class Fiber {
 public:
  using Function = void (*)(void*);

  // Below the stack lies an inaccessible page: overflow ends the process instead of spreading.
  explicit Fiber(size_t stack_bytes);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Prepares `function(argument)` to run at the next Resume; what ran before is forgotten.
  void Start(Function function, void* argument);
  // Runs the function until it yields or returns. Not to be called from inside a fiber.
  void Resume();
  bool finished() const { return finished_; }

  // Back to the caller of Resume; only inside a fiber.
  static void Yield();

 private:
  struct Machine;  // registers and sanitizer state
  static void Main();

  MemoryMap stack_;
  std::unique_ptr<Machine> machine_;
  Function function_ = nullptr;
  void* argument_ = nullptr;
  bool finished_ = true;
};

}  // namespace strata::simt
