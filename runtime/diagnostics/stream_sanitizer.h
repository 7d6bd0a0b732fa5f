// SPDX-License-Identifier: BSD-3-Clause
//
// Stream sanitizer: finds memory that two streams use without ordering, if at least one of them
// writes to it (OPENREG_STREAM_SANITIZER=1, torch.openreg.stream_sanitizer).
//
// It connects torch with the race detector (race_detector.h). A RecordFunction callback observes
// the operators that torch calls on all threads. For each call, it obtains the arguments, and reads
// in the schema which of them are written. If the call launches a kernel, its arguments count as
// used on the launch's stream, and its results count as written there. c10 reports events, waits
// and memory (hooks.cc). Copies between devices report their order. The sanitizer therefore
// observes the order that the program requests, and its findings do not depend on timing.
//
// A race is found before the second kernel is queued. The program then receives a warning, or the
// operator fails (c10::Error). The sanitizer does not observe launches outside operators (code that
// calls orLaunchKernel), host memory, or memory that was allocated before the sanitizer was
// started.
//
// Any thread may call these functions. The sanitize_* functions are called only while
// sanitizes_streams() is true and no lock is held.
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

// Discards earlier findings and starts. The sanitizer has no record of earlier launches.
OPENREG_API void start_stream_sanitizer(RaceAction action);
void stop_stream_sanitizer();
OPENREG_API RaceAction stream_sanitizer_action();

// The largest number of races that are stored after a start. Further races are dropped.
constexpr size_t kRacesKept = 1000;
OPENREG_API std::vector<Race> found_races();

inline bool sanitizes_streams() noexcept { return launch_watchers.contains(kStreamSanitizer); }

// Reports that an operator on this thread launches a kernel. `name` is the kernel's name.
OPENREG_API void sanitize_launch(orStream_t stream, const char* name);

// Report changes to memory. If sanitize_allocation() throws, the caller must free the memory.
void sanitize_allocation(const void* pointer, size_t bytes, orStream_t stream);
void sanitize_free(const void* pointer);
void sanitize_guard(const void* pointer, orStream_t stream);  // for record_stream()

// Report an order of work, after the driver has established it.
void sanitize_record(orEvent_t event, orStream_t stream);
void sanitize_destroy(orEvent_t event);
void sanitize_wait(orStream_t stream, orEvent_t event);
OPENREG_API void sanitize_order(orStream_t earlier, orStream_t later);
void sanitize_host_wait(orEvent_t event);
void sanitize_host_wait(orStream_t stream);
void sanitize_host_wait(c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_STREAM_SANITIZER_H_
