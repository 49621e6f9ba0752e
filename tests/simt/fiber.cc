#include "tests/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#if defined(__x86_64__) && !defined(STRATA_SIMT_UCONTEXT)
#define STRATA_SIMT_ASSEMBLY 1
#else
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef STRATA_SIMT_ASSEMBLY
// Saves the callee-saved registers (System V ABI) on the current stack, stores the stack pointer in
// *save, and continues where `stack` was saved. A hundred times faster than swapcontext, which
// makes two system calls.
extern "C" void strata_simt_switch(void** save, void* stack);
asm(R"(
.text
.globl strata_simt_switch
.hidden strata_simt_switch
.type strata_simt_switch, @function
strata_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size strata_simt_switch, . - strata_simt_switch
)");
#endif

namespace strata::simt {
namespace {

Fiber* current = nullptr;

// A suspended flow of control.
struct Context {
#ifdef STRATA_SIMT_ASSEMBLY
  void* stack_pointer = nullptr;
#else
  ucontext_t registers;
#endif
  // For the address sanitizer, which must know on which stack the program runs.
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

void Switch(Context& from, Context& to, bool last_time) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last_time ? nullptr : &from.fake_stack, to.stack_bottom,
                                 to.stack_bytes);
#else
  (void)last_time;
#endif
#ifdef STRATA_SIMT_ASSEMBLY
  strata_simt_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.registers, &to.registers);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace

struct Fiber::Machine {
  Context inside;
  Context caller;
};

Fiber::Fiber(size_t stack_bytes) : machine_(std::make_unique<Machine>()) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (stack_bytes + page - 1) / page * page;
  auto stack = MemoryMap::Anonymous(page + rounded, /*huge=*/false);
  if (!stack.ok() || mprotect(stack->data(), page, PROT_NONE) != 0) {
    fprintf(stderr, "cannot make a fiber's stack of %zu bytes\n", rounded);
    abort();
  }
  stack_ = *std::move(stack);
  machine_->inside.stack_bottom = stack_.data() + page;
  machine_->inside.stack_bytes = rounded;
}

Fiber::~Fiber() = default;

void Fiber::Start(Function function, void* argument) {
  function_ = function;
  argument_ = argument;
  finished_ = false;
  Context& inside = machine_->inside;
  inside.fake_stack = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  // An abandoned run leaves poisoned bytes behind.
  __asan_unpoison_memory_region(inside.stack_bottom, inside.stack_bytes);
#endif
#ifdef STRATA_SIMT_ASSEMBLY
  // What strata_simt_switch expects: six registers, the address to return to, and above it a null
  // return address that ends stack traces. Main starts as if called: stack pointer = 8 mod 16.
  auto* top = reinterpret_cast<void**>(stack_.data() + stack_.size()) - 1;
  *top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::Main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  inside.stack_pointer = top;
#else
  getcontext(&inside.registers);
  inside.registers.uc_stack.ss_sp = const_cast<void*>(inside.stack_bottom);
  inside.registers.uc_stack.ss_size = inside.stack_bytes;
  inside.registers.uc_link = nullptr;
  makecontext(&inside.registers, &Fiber::Main, 0);
#endif
}

void Fiber::Main() {
  Fiber* self = current;
#if defined(__SANITIZE_ADDRESS__)
  Context& caller = self->machine_->caller;
  __sanitizer_finish_switch_fiber(nullptr, &caller.stack_bottom, &caller.stack_bytes);
#endif
  self->function_(self->argument_);
  self->finished_ = true;
  Switch(self->machine_->inside, self->machine_->caller, /*last_time=*/true);
  abort();  // a finished fiber is never resumed
}

void Fiber::Resume() {
  current = this;
  Switch(machine_->caller, machine_->inside, /*last_time=*/false);
  current = nullptr;
}

void Fiber::Yield() {
  Machine& machine = *current->machine_;
  Switch(machine.inside, machine.caller, /*last_time=*/false);
}

}  // namespace strata::simt
