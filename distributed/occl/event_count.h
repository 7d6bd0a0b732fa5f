// SPDX-License-Identifier: BSD-3-Clause
//
// event_count.h - an event count, with which ranks wait for a change in their shared memory.
//
// An EventCount is in the shared memory, which is initially zero. A rank that changes the memory
// calls Notify(). A waiter first spins. Then it reads the epoch, checks its condition again, and
// sleeps until the epoch changes. Any thread of any process may use it.
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
  // Sleeps until the epoch differs from `seen`, but at most for `longest`. Returns whether it
  // differs.
  bool Wait(uint32_t seen, std::chrono::nanoseconds longest);
};

// Polls `done` for some microseconds, because the condition is often met soon. Returns whether
// `done` returned true.
bool Spin(const std::function<bool()>& done);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_EVENT_COUNT_H_
