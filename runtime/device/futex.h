// SPDX-License-Identifier: BSD-3-Clause
//
// futex.h - sleeping, waking and short spinning, without a mutex.
//
// A futex is a 32-bit word of the process: FutexWait sleeps while the word holds `expected` and may
// return at any time for no reason, so every caller loops over its own condition. Callable from
// every thread; FutexWake is async-signal-safe.
#ifndef RUNTIME_DEVICE_FUTEX_H_
#define RUNTIME_DEVICE_FUTEX_H_

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace openreg::device {

inline void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void FutexWake(std::atomic<uint32_t>& word, int threads = INT_MAX) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// Tells the core that this is a spin loop.
inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// How a loop waits for what another thread does in a moment: it spins, then offers its core, then
// sleeps a little, in case that thread has lost its own core for long.
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

// A lock for sections of a few dozen instructions. A holder may lose its core, on a busy machine
// for milliseconds, so waiters back off.
class SpinLock {
 public:
  void lock() {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      LockContended();
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  void LockContended() {
    for (Backoff backoff;; backoff.Pause()) {
      if (!held_.load(std::memory_order_relaxed) &&
          !held_.exchange(true, std::memory_order_acquire)) {
        return;
      }
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_FUTEX_H_
