// SPDX-License-Identifier: BSD-3-Clause
//
// What is watched about launches, for those who look for an error: one word that the path of every
// launch reads, with a bit for each watcher. It is 0 in a program that runs as usual.
//
//   kLaunchSites      each launch keeps the Python stack that it comes from, and the error of its
//                     kernel shows it (launch_site.h)
//   kStreamSanitizer  uses of memory are compared between streams (stream_sanitizer.h)
//
// Threads: any; the word is one for the process.
#ifndef RUNTIME_C10_LAUNCH_WATCH_H_
#define RUNTIME_C10_LAUNCH_WATCH_H_

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

enum LaunchWatch : uint32_t { kLaunchSites = 0x1, kStreamSanitizer = 0x2 };

namespace detail {
OPENREG_API extern std::atomic<uint32_t> launch_watch_bits;
}

// The bits of all watchers.
inline uint32_t launch_watch() noexcept {
  return detail::launch_watch_bits.load(std::memory_order_relaxed);
}

OPENREG_API void set_launch_watch(LaunchWatch bit, bool on) noexcept;

// Reads OPENREG_LAUNCH_SITES and OPENREG_STREAM_SANITIZER, once, at the first use of the device or
// of these settings; throws for a value that is not understood, each time.
OPENREG_API void read_watch_environment();

}  // namespace openreg

#endif  // RUNTIME_C10_LAUNCH_WATCH_H_
