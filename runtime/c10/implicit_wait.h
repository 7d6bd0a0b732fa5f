// SPDX-License-Identifier: BSD-3-Clause
//
// Implicit waits: operators that make the host wait for the device, although the program asked for
// a value and not for a wait (item(), cpu(), nonzero(), a fallback that runs on the host).
//
// A program may ask to be warned of them, or that they fail (torch.openreg.set_sync_debug_mode).
// Whoever is about to wait announces it first, before anything is queued, so that an operator that
// is refused has changed nothing. Not announced are waits that the program asks for by name
// (synchronize), and those by which an operator learns something once and for all.
//
// While a graph is captured from the stream, a wait can not be: what it would wait for does not
// run. It fails, whatever the mode.
//
// Threads: any; the mode is one for the process, as CUDA's is.
#ifndef RUNTIME_C10_IMPLICIT_WAIT_H_
#define RUNTIME_C10_IMPLICIT_WAIT_H_

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

// In the order of torch.cuda's numbers.
enum class SyncDebugMode : uint8_t { kDefault = 0, kWarn = 1, kError = 2 };

namespace detail {
// The SyncDebugMode, and kCapture for each capture that goes on.
constexpr uint32_t kCapture = 0x100;
OPENREG_API extern std::atomic<uint32_t> watched_waits;
[[gnu::cold]] OPENREG_API void report_implicit_wait(const char* name, const char* reason,
                                                    c10::DeviceIndex device);
}  // namespace detail

OPENREG_API void set_sync_debug_mode(SyncDebugMode mode) noexcept;
OPENREG_API SyncDebugMode sync_debug_mode() noexcept;

// Counts the captures that go on.
OPENREG_API void count_capture() noexcept;
OPENREG_API void discount_capture() noexcept;

// Operator `name` is going to wait for the current stream of `device`, because of `reason` ("it
// returns a number"). Warns or throws c10::Error if the program wants that, throws if the stream is
// captured; else one relaxed load.
inline void announce_wait(const char* name, const char* reason, c10::DeviceIndex device) {
  if (C10_UNLIKELY(detail::watched_waits.load(std::memory_order_relaxed) != 0)) {
    detail::report_implicit_wait(name, reason, device);
  }
}

}  // namespace openreg

#endif  // RUNTIME_C10_IMPLICIT_WAIT_H_
