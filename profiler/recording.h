// SPDX-License-Identifier: BSD-3-Clause
//
// recording.h - pauses and resumes the recording of device activity within a torch.profiler
// session, for torch.openreg.profiler. Without a session, the functions do nothing. Any thread may
// call them, but only one thread at a time.
#ifndef PROFILER_RECORDING_H_
#define PROFILER_RECORDING_H_

#include "runtime/device/openreg.h"

namespace openreg {

OPENREG_API void resume_recording();
OPENREG_API void pause_recording();

}  // namespace openreg

#endif  // PROFILER_RECORDING_H_
