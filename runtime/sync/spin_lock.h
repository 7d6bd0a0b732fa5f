// SPDX-License-Identifier: BSD-3-Clause
//
// spin_lock.h - a one-byte lock for critical sections of a few dozen instructions.
//
// Acquiring a free lock costs one atomic exchange. A waiter first spins for about the length of
// such a section, then yields, then sleeps: on a busy machine, the thread that holds the lock may
// be descheduled for milliseconds. Any thread may call it.
#ifndef RUNTIME_SYNC_SPIN_LOCK_H_
#define RUNTIME_SYNC_SPIN_LOCK_H_

#include <sched.h>
#include <unistd.h>

#include <atomic>

namespace openreg {

// Tells the CPU core that this is a spin loop.
inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Paces a loop that waits for another thread. Pause() spins at first, later yields, and finally
// sleeps.
class Backoff {
 public:
  void Pause() {
    ++round_;
    if (round_ < 100) {
      SpinPause();
    } else if (round_ < 1000) {
      sched_yield();
    } else {
      usleep(50);
    }
  }

 private:
  int round_ = 0;
};

class SpinLock {
 public:
  void lock() {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      LockContended();
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline, gnu::cold]] void LockContended() {
    for (Backoff backoff;; backoff.Pause()) {
      if (!held_.load(std::memory_order_relaxed) &&
          !held_.exchange(true, std::memory_order_acquire)) {
        return;
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace openreg

#endif  // RUNTIME_SYNC_SPIN_LOCK_H_
