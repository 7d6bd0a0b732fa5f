// SPDX-License-Identifier: BSD-3-Clause
//
// The diagnostics that a program can turn on, with one bit each. For memory, c10 calls the
// diagnostics in memory_watchers. For events and waits, it calls those in stream_watchers
// (runtime/c10/diagnostic_hooks.h). For launches, a package that launches kernels calls those in
// launch_watchers. All three words are normally 0, and each path reads only the word that it needs.
//
// Any thread may call these functions. The words are global to the process.
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
  kKernelWarnings = 0x10,  // watches streams while warnings are stored (warning.h)
};

OPENREG_API extern Watchers launch_watchers;

// Returns the bits of launch_watchers: kLaunchSites and kStreamSanitizer.
inline uint32_t launch_watcher_bits() noexcept { return launch_watchers.bits(); }

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_WATCHER_H_
