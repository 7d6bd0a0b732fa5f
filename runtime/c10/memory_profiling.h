// SPDX-License-Identifier: BSD-3-Clause
//
// memory_profiling.h - whether torch's profiler records memory (profile_memory=True).
//
// c10::memoryProfilingEnabled() costs as much as the rest of a small allocation's fast path. For
// this reason, it is called only after the first profiler session in this process has begun. The
// profiler's library reports that session (profiler/kineto_plugin.cc). Any thread may call these
// functions.
#ifndef RUNTIME_C10_MEMORY_PROFILING_H_
#define RUNTIME_C10_MEMORY_PROFILING_H_

#include <c10/core/Allocator.h>
#include <c10/macros/Macros.h>

#include <atomic>

#include "runtime/device/openreg.h"

namespace openreg {

// A function that returns whether a profiler session has ever begun in this process. If the
// profiler's library is not loaded, it always returns true.
OPENREG_API extern std::atomic<bool (*)()> profiler_was_used;

// Returns whether torch's profiler records memory on this thread.
inline bool profiles_memory() {
  return C10_UNLIKELY(profiler_was_used.load(std::memory_order_relaxed)()) &&
         c10::memoryProfilingEnabled();
}

}  // namespace openreg

#endif  // RUNTIME_C10_MEMORY_PROFILING_H_
