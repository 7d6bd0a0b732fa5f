// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/implicit_wait.h"

#include <c10/util/Exception.h>

#include <string>

#include "runtime/c10/stream.h"

namespace openreg {
namespace detail {

std::atomic<uint32_t> watched_waits{0};

void report_implicit_wait(const char* name, const char* reason, c10::DeviceIndex device) {
  const std::string text =
      c10::str("openreg: ", name, " makes the host wait for openreg:", static_cast<int>(device),
               ": ", reason);
  if (is_capturing(current_native_stream(device))) {
    // Let the driver reject the wait, so that it invalidates the capture, as for any other wait.
    (void)orStreamSynchronize(current_native_stream(device));
    (void)orGetLastError();
    TORCH_CHECK(
        false, text,
        ". No work runs while a graph is being captured, so the wait would never end: do this "
        "before or after the capture. The capture is now invalid");
  }
  const SyncDebugMode mode = openreg::sync_debug_mode();
  if (mode == SyncDebugMode::kDefault) {
    return;
  }
  TORCH_CHECK(mode != SyncDebugMode::kError, text,
              ". torch.openreg.set_sync_debug_mode(\"error\") makes such waits an error: to allow "
              "this one, set the mode to \"default\" around it");
  TORCH_WARN(text, ". (torch.openreg.set_sync_debug_mode(\"warn\") enabled this warning)");
}

}  // namespace detail

void set_sync_debug_mode(SyncDebugMode mode) noexcept {
  uint32_t before = detail::watched_waits.load(std::memory_order_relaxed);
  while (!detail::watched_waits.compare_exchange_weak(
      before, before / detail::kCapture * detail::kCapture + static_cast<uint32_t>(mode),
      std::memory_order_relaxed)) {
  }
}

SyncDebugMode sync_debug_mode() noexcept {
  return static_cast<SyncDebugMode>(detail::watched_waits.load(std::memory_order_relaxed) %
                                    detail::kCapture);
}

void count_capture() noexcept {
  detail::watched_waits.fetch_add(detail::kCapture, std::memory_order_relaxed);
}

void discount_capture() noexcept {
  detail::watched_waits.fetch_sub(detail::kCapture, std::memory_order_relaxed);
}

}  // namespace openreg
