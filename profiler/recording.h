// SPDX-License-Identifier: BSD-3-Clause
//
// recording.h - pauses and resumes the recording of the device within a session of torch.profiler,
// for torch.openreg.profiler. Without a session the functions do nothing. Threads: any, one at a
// time.
#ifndef PROFILER_RECORDING_H_
#define PROFILER_RECORDING_H_

#include "runtime/device/openreg.h"

namespace openreg {

OPENREG_API void resume_recording();
OPENREG_API void pause_recording();

}  // namespace openreg

#endif  // PROFILER_RECORDING_H_
