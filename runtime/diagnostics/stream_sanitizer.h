// SPDX-License-Identifier: BSD-3-Clause
//
// Stream sanitizer: finds memory that two streams use without ordering, where at least one of them
// writes (OPENREG_STREAM_SANITIZER=1, torch.openreg.stream_sanitizer).
//
// It connects torch with the race detector (race_detector.h). A RecordFunction callback observes
// operators on all threads when torch calls them: each call's arguments, and which of them the
// schema declares as written. If the call launches a kernel, its arguments count as used on the
// launch's stream, and its results as written there. c10 reports events, waits and memory
// (hooks.cc); copies between devices report their order. The sanitizer therefore sees the program's
// order, and its findings do not depend on timing.
//
// A race is found before the second kernel is queued: the program gets a warning, or the operator
// fails (c10::Error). The sanitizer does not see launches outside operators (code that calls
// orLaunchKernel), host memory, or memory that was allocated before the sanitizer was started.
//
// Any thread may call these functions. The sanitize_* functions are called only while
// sanitizes_streams() is true, and while no lock is held.
#ifndef RUNTIME_DIAGNOSTICS_STREAM_SANITIZER_H_
#define RUNTIME_DIAGNOSTICS_STREAM_SANITIZER_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/device/openreg.h"
#include "runtime/diagnostics/race_detector.h"
#include "runtime/diagnostics/watcher.h"

namespace openreg {

enum class RaceAction : uint8_t { kOff, kWarn, kError };

// Discards earlier findings and starts. Earlier launches are unknown to the sanitizer.
OPENREG_API void start_stream_sanitizer(RaceAction action);
void stop_stream_sanitizer();
OPENREG_API RaceAction stream_sanitizer_action();

// The largest number of races that are kept after a start. Later races are dropped.
constexpr size_t kRacesKept = 1000;
OPENREG_API std::vector<Race> found_races();

inline bool sanitizes_streams() noexcept { return launch_watchers.contains(kStreamSanitizer); }

// Reports that this thread's operator launches a kernel. `name` is the kernel's name.
OPENREG_API void sanitize_launch(orStream_t stream, const char* name);

// Report changes to memory. sanitize_allocation() may throw; the caller then frees the memory.
void sanitize_allocation(const void* pointer, size_t bytes, orStream_t stream);
void sanitize_free(const void* pointer);
void sanitize_guard(const void* pointer, orStream_t stream);  // record_stream

// Report an ordering after the driver has established it.
void sanitize_record(orEvent_t event, orStream_t stream);
void sanitize_destroy(orEvent_t event);
void sanitize_wait(orStream_t stream, orEvent_t event);
OPENREG_API void sanitize_order(orStream_t earlier, orStream_t later);
void sanitize_host_wait(orEvent_t event);
void sanitize_host_wait(orStream_t stream);
void sanitize_host_wait(c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_STREAM_SANITIZER_H_
