// SPDX-License-Identifier: BSD-3-Clause
//
// event_count.h - an event count: ranks use it to wait for a change in the memory that they share.
//
// An EventCount lies in the shared memory, which is initially zero. A rank that changes something
// calls Notify(). A waiter first spins. Then it reads the epoch, checks its condition once more,
// and sleeps until the epoch changes. Any thread may call it, in all processes.
#ifndef DISTRIBUTED_OCCL_EVENT_COUNT_H_
#define DISTRIBUTED_OCCL_EVENT_COUNT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace openreg::occl {

struct EventCount {
  std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> waiters;

  void Notify();
  // Sleeps for `longest` or until the epoch differs from `seen`. Returns whether it differs.
  bool Wait(uint32_t seen, std::chrono::nanoseconds longest);
};

// Polls `done` for some microseconds, because it is often true soon. Returns whether it is.
bool Spin(const std::function<bool()>& done);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_EVENT_COUNT_H_
