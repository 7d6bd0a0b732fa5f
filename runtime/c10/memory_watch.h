// SPDX-License-Identifier: BSD-3-Clause
//
// Who watches device memory, for those who look for an error: one word that each allocation and
// each free reads, with a bit for each watcher. It is 0 in a program that runs as usual.
//
//   kWatchStreams  uses of memory are compared between streams (stream_sanitizer.h)
//   kWatchHistory  allocations are recorded (memory_history.h)
//   kWatchBounds   memory is given out between red zones (memcheck.h)
//
// Threads: any; the word is one for the process.
#ifndef RUNTIME_C10_MEMORY_WATCH_H_
#define RUNTIME_C10_MEMORY_WATCH_H_

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

enum MemoryWatch : uint32_t { kWatchStreams = 0x1, kWatchHistory = 0x2, kWatchBounds = 0x4 };

namespace detail {
OPENREG_API inline std::atomic<uint32_t> memory_watch_bits{0};
}

// The bits of all watchers.
inline uint32_t memory_watch() noexcept {
  return detail::memory_watch_bits.load(std::memory_order_relaxed);
}

inline void set_memory_watch(MemoryWatch bit, bool on) noexcept {
  if (on) {
    detail::memory_watch_bits.fetch_or(bit, std::memory_order_relaxed);
  } else {
    detail::memory_watch_bits.fetch_and(~static_cast<uint32_t>(bit), std::memory_order_relaxed);
  }
}

}  // namespace openreg

#endif  // RUNTIME_C10_MEMORY_WATCH_H_
