// SPDX-License-Identifier: BSD-3-Clause
//
// SpinLock - one byte, for critical sections of some ten nanoseconds. Taking a free lock costs one
// atomic exchange. A waiter spins for about as long as such a section takes and then lets others
// run: on a busy machine the holder may not be on a core.
#ifndef RUNTIME_ALLOCATOR_SPIN_LOCK_H_
#define RUNTIME_ALLOCATOR_SPIN_LOCK_H_

#include <sched.h>

#include <atomic>

namespace openreg::allocator {

class SpinLock {
 public:
  void lock() {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      wait();
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 100;

  [[gnu::noinline, gnu::cold]] void wait() {
    do {
      for (int spin = 0; held_.load(std::memory_order_relaxed); ++spin) {
        if (spin < kSpins) {
          pause();
        } else {
          (void)sched_yield();
        }
      }
    } while (held_.exchange(true, std::memory_order_acquire));
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<bool> held_{false};
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SPIN_LOCK_H_
