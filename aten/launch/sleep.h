// SPDX-License-Identifier: BSD-3-Clause
//
// A kernel that sleeps, for tests and demonstrations of asynchrony (torch.openreg._sleep). Any
// thread may call it.
#ifndef ATEN_LAUNCH_SLEEP_H_
#define ATEN_LAUNCH_SLEEP_H_

#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

// Keeps the current stream of the current device busy for `nanoseconds`. The kernel never runs on
// the calling thread.
OPENREG_API void launch_sleep(int64_t nanoseconds);

}  // namespace openreg

#endif  // ATEN_LAUNCH_SLEEP_H_
