// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/implicit_wait.h"

#include <c10/util/Exception.h>

#include <string>

namespace openreg {
namespace detail {

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::kDefault};

void report_implicit_wait(const char* name, const char* reason, c10::DeviceIndex device) {
  const std::string text =
      c10::str("openreg: ", name, " makes the host wait for openreg:", static_cast<int>(device),
               ": ", reason);
  TORCH_CHECK(sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kError, text,
              ". Such waits are errors since torch.openreg.set_sync_debug_mode(\"error\"); where "
              "one is meant, set the mode back to \"default\" around it");
  TORCH_WARN(text, ". (torch.openreg.set_sync_debug_mode(\"warn\") asks for this warning)");
}

}  // namespace detail

void set_sync_debug_mode(SyncDebugMode mode) noexcept {
  detail::sync_debug_mode.store(mode, std::memory_order_relaxed);
}

SyncDebugMode sync_debug_mode() noexcept {
  return detail::sync_debug_mode.load(std::memory_order_relaxed);
}

}  // namespace openreg
