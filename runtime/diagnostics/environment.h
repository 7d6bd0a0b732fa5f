// SPDX-License-Identifier: BSD-3-Clause
//
// The environment variables that turn diagnostics on: OPENREG_LAUNCH_SITES,
// OPENREG_STREAM_SANITIZER and OPENREG_MEMCHECK. Any thread may call it.
#ifndef RUNTIME_DIAGNOSTICS_ENVIRONMENT_H_
#define RUNTIME_DIAGNOSTICS_ENVIRONMENT_H_

#include "runtime/device/openreg.h"

namespace openreg {

// Applies the variables once, at the first use of the device or of a diagnostic's settings. For an
// invalid value, every call throws.
OPENREG_API void read_environment();

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_ENVIRONMENT_H_
