// SPDX-License-Identifier: BSD-3-Clause
//
// bell.h - how ranks wait for a change of memory that they share.
//
// A bell lies in that memory, which begins as zeros. A rank that has changed something rings. One
// that waits first spins; then it reads the number of rings, looks once more, and sleeps until
// there is another one. Threads: any, of all processes.
#ifndef DISTRIBUTED_OCCL_BELL_H_
#define DISTRIBUTED_OCCL_BELL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace openreg::occl {

struct Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;

  void Ring();
  // Sleeps for `longest`, or until there are more rings than `seen`. Whether there are.
  bool Sleep(uint32_t seen, std::chrono::nanoseconds longest);
};

// Looks for some microseconds whether it is done: what a rank waits for often comes at once.
bool Spin(const std::function<bool()>& done);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_BELL_H_
