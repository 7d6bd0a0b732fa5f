// SPDX-License-Identifier: BSD-3-Clause
//
// Streams: c10::Stream <-> orStream_t, and the current stream of each thread and device.
//
// A StreamId is 0 for the default stream and otherwise the driver's handle, so that translation is
// a cast. Streams that torch makes come from a pool of kStreamsPerPool for each device and
// priority, round robin: a c10::Stream is a value, and torch never tells a backend that one is no
// longer used. Threads: any; the current stream belongs to the calling thread.
#ifndef RUNTIME_C10_STREAM_H_
#define RUNTIME_C10_STREAM_H_

#include <c10/core/Stream.h>

#include "runtime/c10/device.h"

namespace openreg {

constexpr int kStreamsPerPool = 32;

// The handle of a stream; throws if it is not one of this device type.
OPENREG_API orStream_t native_stream(const c10::Stream& stream);

// The handle of the current stream of `device`, which must exist. On the path of every launch.
OPENREG_API orStream_t current_native_stream(c10::DeviceIndex device);

c10::Stream default_stream(c10::DeviceIndex device);
OPENREG_API c10::Stream current_stream(c10::DeviceIndex device);

// Makes `stream` current for its device in this thread and returns the previous one.
OPENREG_API c10::Stream exchange_stream(const c10::Stream& stream);

// Whether `stream` is being captured: true until the end of the capture, also of an invalid one.
OPENREG_API bool is_capturing(orStream_t stream);

// Waits for `stream` and throws the first error of its kernels.
OPENREG_API void synchronize_stream(orStream_t stream);

// A stream from the pool; `priority` is clamped to the driver's range (a lower value is more
// urgent).
OPENREG_API c10::Stream pooled_stream(c10::DeviceIndex device, int priority);

// A stream for a driver handle, which stays with its owner.
OPENREG_API c10::Stream external_stream(orStream_t handle, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_STREAM_H_
