// SPDX-License-Identifier: BSD-3-Clause
//
// spin_wait.h - spinning for a short time before a consumer or a waiting host thread sleeps. Any
// thread may call it.
#ifndef RUNTIME_DEVICE_SPIN_WAIT_H_
#define RUNTIME_DEVICE_SPIN_WAIT_H_

#include <chrono>

#include "runtime/device/executor.h"
#include "runtime/device/thread.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::device {

// The time for which threads spin. It is long enough to cover the host's time between two launches,
// and short enough not to be noticeable as CPU load.
inline constexpr std::chrono::microseconds kSpin{20};

// Spins until `ready` returns true, for at most kSpin. Returns whether it did. Does not spin if
// spinning would occupy a core that a parallel kernel or the awaited thread needs.
template <class Ready>
bool SpinUntil(Ready ready) {
  if (ready()) {
    return true;
  }
  if (!MaySpin()) {
    return false;
  }
  const Executor& executor = Executor::Get();
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    if (executor.parallel_running()) {
      return false;
    }
    for (int round = 0; round < 16; ++round) {
      if (ready()) {
        return true;
      }
      SpinPause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_SPIN_WAIT_H_
