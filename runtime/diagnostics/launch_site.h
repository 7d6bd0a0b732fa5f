// SPDX-License-Identifier: BSD-3-Clause
//
// Launch sites: the Python stack of the call that launched a kernel, shown in the kernel's error.
//
// A kernel fails later than its launch, and the program's next wait throws the error. If launch
// sites are enabled (OPENREG_LAUNCH_SITES=1, torch.openreg.set_launch_sites), each launch captures
// its stack and passes it to the kernel. The thread that runs the kernel passes the stack to a
// LaunchSiteScope. There, the driver's package finds the stack and attaches it to the exception.
// Any thread may call these functions; a scope belongs to its thread.
#ifndef RUNTIME_DIAGNOSTICS_LAUNCH_SITE_H_
#define RUNTIME_DIAGNOSTICS_LAUNCH_SITE_H_

#include "runtime/diagnostics/call_stack.h"

namespace openreg {

OPENREG_API void set_launch_sites(bool on);
OPENREG_API bool launch_sites();

// While the scope exists, a kernel error on this thread is attributed to the launch at `stack`.
class OPENREG_API LaunchSiteScope {
 public:
  explicit LaunchSiteScope(const CallStack& stack) noexcept;
  ~LaunchSiteScope();
  LaunchSiteScope(const LaunchSiteScope&) = delete;
  LaunchSiteScope& operator=(const LaunchSiteScope&) = delete;

 private:
  const CallStack* before_;
};

// Returns the stack of this thread's innermost scope, or null if there is none.
OPENREG_API CallStack current_launch_site();

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_LAUNCH_SITE_H_
