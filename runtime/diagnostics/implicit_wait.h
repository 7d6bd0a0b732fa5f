// SPDX-License-Identifier: BSD-3-Clause
//
// Implicit waits: an operator makes the host wait for the device although the program requested a
// value and not a wait. Examples are item(), cpu(), nonzero(), and a fallback that runs on the
// host.
//
// A program may request a warning or an error for these waits (torch.openreg.set_sync_debug_mode).
// An operator announces a wait before it queues anything, so an operator that fails has changed
// nothing. Explicit waits (synchronize) are not announced. Neither are waits that happen only once
// per process, for information that an operator then stores.
//
// During a capture, no work runs, so an operator cannot wait: it fails in every mode. torch does
// not require the announcement from a device. Without it, the driver would still reject the wait,
// but its error could not contain the operator's name.
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

// Count a capture in progress. count_capture() is called when a capture begins, and
// discount_capture() when it ends.
void count_capture() noexcept;
void discount_capture() noexcept;

// Announces that operator `name` is about to wait for the current stream of `device`, because of
// `reason` (for example, "it returns a scalar"). Warns or throws c10::Error, depending on the mode.
// Always throws if the stream is being captured. In all other cases, costs one relaxed load.
inline void announce_wait(const char* name, const char* reason, c10::DeviceIndex device) {
  if (C10_UNLIKELY(detail::watched_waits.load(std::memory_order_relaxed) != 0)) {
    detail::report_implicit_wait(name, reason, device);
  }
}

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_IMPLICIT_WAIT_H_
