// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <thread>

namespace openreg::device {

constinit thread_local ThreadState thread_state{};

namespace {

struct Start {
  char name[16];
  void (*run)(void*);
  void* argument;
};

// The alternate signal stack of one thread. It exists as long as the thread.
class AlternateStack {
 public:
  AlternateStack() {
    void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) {
      return;  // fault reports still work, except after a stack overflow
    }
    memory_ = memory;
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = kSize;
    sigaltstack(&stack, &previous_);
  }
  ~AlternateStack() {
    if (memory_ != nullptr) {
      sigaltstack(&previous_, nullptr);
      munmap(memory_, kSize);
    }
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  static constexpr size_t kSize = 64 * 1024;
  void* memory_ = nullptr;
  stack_t previous_{};  // the stack of a sanitizer, which is restored before the thread ends
};

void* Enter(void* raw) {
  std::unique_ptr<Start> start(static_cast<Start*>(raw));
  pthread_setname_np(pthread_self(), start->name);
  AlternateStack stack;
  thread_state.of_device = true;
  start->run(start->argument);
  return nullptr;
}

}  // namespace

bool StartThread(pthread_t* thread, const char* name, void (*run)(void*), void* argument) {
  auto start = std::make_unique<Start>();
  std::snprintf(start->name, sizeof(start->name), "%s", name);
  start->run = run;
  start->argument = argument;
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked,
                  &before);  // the new thread inherits this mask
  const int error = pthread_create(thread, nullptr, Enter, start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    errno = error;
    return false;
  }
  (void)start.release();  // now owned by Enter
  return true;
}

int CoreCount() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return CPU_COUNT(&cores);
  }
  const unsigned count =
      std::thread::hardware_concurrency();  // the machine has more cores than cpu_set_t has bits
  return count == 0 ? 1 : static_cast<int>(count);
}

}  // namespace openreg::device
