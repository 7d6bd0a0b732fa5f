// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/recording.h"

#include "profiler/collector.h"

namespace openreg {

void resume_recording() { ActivityCollector::get().resume(); }
void pause_recording() { ActivityCollector::get().pause(); }

}  // namespace openreg
