// SPDX-License-Identifier: BSD-3-Clause
//
// Implicit waits: operators that make the host wait for the device, although the program asked for
// a value and not for a wait (item(), cpu(), nonzero(), a fallback that runs on the host).
//
// A program may request a warning or an error for them (torch.openreg.set_sync_debug_mode). An
// operator announces a wait before it queues anything, so that one that fails has changed nothing.
// Not announced are waits that the program asks for by name (synchronize), and those by which an
// operator learns something once for the whole process.
//
// While the stream is captured an operator cannot wait, because nothing runs. It fails in every
// mode. torch requires none of this of a device: without the announcement the driver refuses the
// wait, but cannot name the operator.
//
// Threads: any; the process has one mode, as with CUDA.
#ifndef RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_
#define RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

// In the order of torch.cuda's numbers.
enum class SyncDebugMode : uint8_t { kDefault = 0, kWarn = 1, kError = 2 };

namespace detail {
// The SyncDebugMode, plus kCapture for each capture in progress.
constexpr uint32_t kCapture = 0x100;
OPENREG_API extern std::atomic<uint32_t> watched_waits;
[[gnu::cold]] OPENREG_API void report_implicit_wait(const char* name, const char* reason,
                                                    c10::DeviceIndex device);
}  // namespace detail

OPENREG_API void set_sync_debug_mode(SyncDebugMode mode) noexcept;
OPENREG_API SyncDebugMode sync_debug_mode() noexcept;

// A capture begins, or ends.
void count_capture() noexcept;
void discount_capture() noexcept;

// Operator `name` is going to wait for the current stream of `device`, because of `reason` ("it
// returns a scalar"). Warns or throws c10::Error if the program requested that, throws if the
// stream is captured; otherwise costs one relaxed load.
inline void announce_wait(const char* name, const char* reason, c10::DeviceIndex device) {
  if (C10_UNLIKELY(detail::watched_waits.load(std::memory_order_relaxed) != 0)) {
    detail::report_implicit_wait(name, reason, device);
  }
}

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_
