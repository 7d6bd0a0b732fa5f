// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/watcher.h"

namespace openreg {

constinit Watchers launch_watchers;

}  // namespace openreg
