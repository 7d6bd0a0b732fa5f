// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/launch_site.h"

#include "runtime/diagnostics/environment.h"
#include "runtime/diagnostics/watcher.h"

namespace openreg {
namespace {

thread_local const CallStack* launched_at = nullptr;

}  // namespace

void set_launch_sites(bool on) {
  read_environment();
  launch_watchers.set(kLaunchSites, on);
}

bool launch_sites() {
  read_environment();
  return launch_watchers.contains(kLaunchSites);
}

LaunchSiteScope::LaunchSiteScope(const CallStack& stack) noexcept : before_(launched_at) {
  launched_at = &stack;
}

LaunchSiteScope::~LaunchSiteScope() { launched_at = before_; }

CallStack current_launch_site() { return launched_at != nullptr ? *launched_at : nullptr; }

}  // namespace openreg
