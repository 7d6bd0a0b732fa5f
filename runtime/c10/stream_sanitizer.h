// SPDX-License-Identifier: BSD-3-Clause
//
// Stream sanitizer: finds memory that two streams use, at least one of them writing, without
// anything that orders them (OPENREG_STREAM_SANITIZER=1, torch.openreg.stream_sanitizer).
//
// Between torch and the race detector (race_detector.h). Operators are observed where torch calls
// them, by a RecordFunction callback, in all threads: the arguments of each call, and which of them
// its schema says are written. They count when the call launches a kernel, on the stream which that
// goes to; results count as written by it. Guard, allocator and copies tell about events, waits and
// memory. So the order is that of the program, and what it finds does not depend on timing.
//
// A race is found before the kernel that makes it is queued: it is warned of, or the operator fails
// (c10::Error). Not seen are launches by other ways than operators (code that calls
// orLaunchKernel), host memory, and memory that was allocated before the start.
//
// Threads: any. All functions but the settings are called only while kStreamSanitizer is set in
// launch_watch(), and with no lock held.
#ifndef RUNTIME_C10_STREAM_SANITIZER_H_
#define RUNTIME_C10_STREAM_SANITIZER_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/c10/launch_watch.h"
#include "runtime/c10/race_detector.h"
#include "runtime/device/openreg.h"

namespace openreg {

enum class RaceAction : uint8_t { kOff, kWarn, kError };

// Forgets all that an earlier use has found, and starts. What was launched before is not known.
OPENREG_API void start_stream_sanitizer(RaceAction action);
OPENREG_API void stop_stream_sanitizer();
OPENREG_API RaceAction stream_sanitizer_action();

// Races since the start, the first kRacesKept of them.
constexpr size_t kRacesKept = 1000;
OPENREG_API std::vector<Race> found_races();

inline bool sanitizes_streams() noexcept { return (launch_watch() & kStreamSanitizer) != 0; }

// The operator that this thread is in launches a kernel; `name` is that of the kernel.
OPENREG_API void sanitize_launch(orStream_t stream, const char* name);

// Memory; the first may throw, after which the caller frees it.
OPENREG_API void sanitize_allocation(const void* pointer, size_t bytes, orStream_t stream);
OPENREG_API void sanitize_free(const void* pointer);
OPENREG_API void sanitize_guard(const void* pointer, orStream_t stream);  // record_stream

// Order: after the driver did as asked.
OPENREG_API void sanitize_record(orEvent_t event, orStream_t stream);
OPENREG_API void sanitize_destroy(orEvent_t event);
OPENREG_API void sanitize_wait(orStream_t stream, orEvent_t event);
OPENREG_API void sanitize_order(orStream_t earlier, orStream_t later);
OPENREG_API void sanitize_host_wait(orEvent_t event);
OPENREG_API void sanitize_host_wait(orStream_t stream);
OPENREG_API void sanitize_host_wait_for_device(c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_STREAM_SANITIZER_H_
