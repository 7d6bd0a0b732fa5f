// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/launch_watch.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "runtime/c10/memory_watch.h"
#include "runtime/c10/stream_sanitizer.h"

namespace openreg {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "0";
}

}  // namespace

namespace detail {
std::atomic<uint32_t> launch_watch_bits{0};
}

void set_launch_watch(LaunchWatch bit, bool on) noexcept {
  if (on) {
    detail::launch_watch_bits.fetch_or(bit, std::memory_order_relaxed);
  } else {
    detail::launch_watch_bits.fetch_and(~static_cast<uint32_t>(bit), std::memory_order_relaxed);
  }
}

void read_watch_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string_view sites = variable("OPENREG_LAUNCH_SITES");
    TORCH_CHECK(sites == "0" || sites == "1", "openreg: OPENREG_LAUNCH_SITES is \"", sites,
                "\": expected 0 or 1");
    const std::string_view sanitizer = variable("OPENREG_STREAM_SANITIZER");
    TORCH_CHECK(sanitizer == "0" || sanitizer == "1" || sanitizer == "warn" || sanitizer == "error",
                "openreg: OPENREG_STREAM_SANITIZER is \"", sanitizer,
                "\": expected 0, 1 (the same as error), warn or error");
    const std::string_view memcheck = variable("OPENREG_MEMCHECK");
    TORCH_CHECK(memcheck == "0" || memcheck == "1", "openreg: OPENREG_MEMCHECK is \"", memcheck,
                "\": expected 0 or 1");
    set_launch_watch(kLaunchSites, sites == "1");
    set_memory_watch(kWatchBounds, memcheck == "1");
    if (sanitizer != "0") {
      start_stream_sanitizer(sanitizer == "warn" ? RaceAction::kWarn : RaceAction::kError);
    }
  });
}

}  // namespace openreg
