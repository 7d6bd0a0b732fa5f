// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/environment.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "runtime/diagnostics/stream_sanitizer.h"
#include "runtime/diagnostics/watcher.h"

namespace openreg {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "0";
}

}  // namespace

void read_environment() {
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
    launch_watchers.set(kLaunchSites, sites == "1");
    memory_watchers.set(kMemcheck, memcheck == "1");
    stream_watchers.set(kMemcheck, memcheck == "1");
    if (sanitizer != "0") {
      start_stream_sanitizer(sanitizer == "warn" ? RaceAction::kWarn : RaceAction::kError);
    }
  });
}

}  // namespace openreg
