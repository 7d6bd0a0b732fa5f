// SPDX-License-Identifier: BSD-3-Clause
//
// futex.h - functions that put threads to sleep and wake them without a mutex.
//
// A futex is a 32-bit word. FutexWait sleeps while the word is equal to `expected`. It may return
// spuriously, so every caller must check its own condition in a loop. Any thread may call these
// functions; FutexWake is async-signal-safe.
#ifndef RUNTIME_DEVICE_FUTEX_H_
#define RUNTIME_DEVICE_FUTEX_H_

#include <linux/futex.h>
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

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_FUTEX_H_
