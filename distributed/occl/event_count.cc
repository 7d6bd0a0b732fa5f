// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <thread>

#include "runtime/sync/spin_lock.h"

namespace openreg::occl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(20);
constexpr auto kSpinOnLoad = std::chrono::microseconds(5);
constexpr auto kLongYield = std::chrono::microseconds(100);
constexpr auto kLoadLasts = std::chrono::milliseconds(50);

// The earliest time of the next yield, in ticks of Clock. While other programs need the processors,
// a yield costs a time slice of several milliseconds, so the next yield is delayed.
std::atomic<Clock::rep> yield_again{0};

}  // namespace

void EventCount::Notify() {
  epoch.fetch_add(1, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &epoch, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool EventCount::Wait(uint32_t seen, std::chrono::nanoseconds longest) {
  const timespec time{0, longest.count()};
  waiters.fetch_add(1, std::memory_order_seq_cst);
  const bool changed =
      syscall(SYS_futex, &epoch, FUTEX_WAIT, seen, &time, nullptr, 0) == 0 || errno == EAGAIN;
  waiters.fetch_sub(1, std::memory_order_seq_cst);
  return changed;
}

// Yields from time to time: if there are more ranks than processors, another rank may need the
// processor.
bool Spin(const std::function<bool()>& done) {
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  const bool yields =
      start.time_since_epoch().count() >= yield_again.load(std::memory_order_relaxed);
  const Clock::time_point end = start + (yields ? kSpin : kSpinOnLoad);
  do {
    for (int round = 0; round < 16; ++round) {
      if (done()) {
        return true;
      }
      SpinPause();
    }
    if (yields) {
      const Clock::time_point before = Clock::now();
      std::this_thread::yield();
      now = Clock::now();
      if (now - before > kLongYield) {
        yield_again.store((now + kLoadLasts).time_since_epoch().count(), std::memory_order_relaxed);
        return done();
      }
    } else {
      now = Clock::now();
    }
  } while (now < end);
  return false;
}

}  // namespace openreg::occl
