// SPDX-License-Identifier: BSD-3-Clause
//
// Implicit waits: operators that make the host wait for the device although the program asked for a
// value and not for a wait (item(), cpu(), nonzero(), a fallback that runs on the host).
//
// A program may request a warning or an error for these waits (torch.openreg.set_sync_debug_mode).
// An operator announces a wait before it queues anything, so an operator that fails has changed
// nothing. Explicit waits (synchronize) are not announced, and neither are waits with which an
// operator determines something once per process.
//
// During a capture, an operator cannot wait, because nothing runs: it fails in every mode. torch
// does not require any of this from a device. Without the announcement, the driver would reject the
// wait but could not name the operator.
//
// Any thread may call these functions. The process has one mode, as with CUDA.
#ifndef RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_
#define RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

// The values are those of torch.cuda.
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

// Count a capture in progress. Called at its beginning and at its end.
void count_capture() noexcept;
void discount_capture() noexcept;

// Announces that operator `name` is about to wait for the current stream of `device`, because of
// `reason` ("it returns a scalar"). Warns or throws c10::Error according to the mode, and throws if
// the stream is being captured. Otherwise costs one relaxed load.
inline void announce_wait(const char* name, const char* reason, c10::DeviceIndex device) {
  if (C10_UNLIKELY(detail::watched_waits.load(std::memory_order_relaxed) != 0)) {
    detail::report_implicit_wait(name, reason, device);
  }
}

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_
