// SPDX-License-Identifier: BSD-3-Clause
//
// The diagnostics that a program can turn on, one bit each. c10 calls those in memory_watchers for
// memory and those in stream_watchers for events and waits (runtime/c10/diagnostic_hooks.h). A
// package that launches kernels calls those in launch_watchers for launches. Normally all three
// words are 0, and each path reads only the word that concerns it.
//
// Any thread may call these functions; the words are global to the process.
#ifndef RUNTIME_DIAGNOSTICS_WATCHER_H_
#define RUNTIME_DIAGNOSTICS_WATCHER_H_

#include <cstdint>

#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/device/openreg.h"

namespace openreg {

enum Watcher : uint32_t {
  kLaunchSites = 0x1,      // watches launches (launch_site.h)
  kStreamSanitizer = 0x2,  // watches launches, memory and streams (stream_sanitizer.h)
  kMemoryHistory = 0x4,    // watches memory (memory_history.h)
  kMemcheck = 0x8,         // watches memory and streams (memcheck.h)
  kKernelWarnings = 0x10,  // watches streams while it holds warnings (warning.h)
};

OPENREG_API extern Watchers launch_watchers;

// Returns the bits of launch_watchers: kLaunchSites and kStreamSanitizer.
inline uint32_t launch_watcher_bits() noexcept { return launch_watchers.bits(); }

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_WATCHER_H_
