// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/launch_site.h"

#include "runtime/c10/launch_watch.h"

namespace openreg {
namespace {

thread_local const CallStack* launched_at = nullptr;

}  // namespace

void set_launch_sites(bool on) {
  read_watch_environment();
  set_launch_watch(kLaunchSites, on);
}

bool launch_sites() {
  read_watch_environment();
  return (launch_watch() & kLaunchSites) != 0;
}

LaunchSiteScope::LaunchSiteScope(const CallStack& stack) noexcept : before_(launched_at) {
  launched_at = &stack;
}

LaunchSiteScope::~LaunchSiteScope() { launched_at = before_; }

CallStack current_launch_site() { return launched_at != nullptr ? *launched_at : nullptr; }

}  // namespace openreg
