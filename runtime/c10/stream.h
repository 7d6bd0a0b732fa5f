// SPDX-License-Identifier: BSD-3-Clause
//
// stream.h - converts streams (c10::Stream to orStream_t and back), and stores each thread's
// current stream on each device.
//
// A StreamId is 0 for the default stream, and the driver's handle for any other stream. A
// conversion is therefore a cast. torch's streams come from a pool of kStreamsPerPool streams per
// device and priority, round robin. The pool never destroys a stream, because a c10::Stream is a
// value, and torch never tells a backend that a stream is no longer used. Any thread may call these
// functions; the current stream belongs to the calling thread.
#ifndef RUNTIME_C10_STREAM_H_
#define RUNTIME_C10_STREAM_H_

#include <c10/core/Stream.h>

#include "runtime/c10/device.h"

namespace openreg {

constexpr int kStreamsPerPool = 32;

// Returns the driver's handle of a stream. Throws if the stream belongs to another device type.
OPENREG_API orStream_t native_stream(const c10::Stream& stream);

// Returns the handle of the current stream of `device`, which must exist. Every launch calls this.
OPENREG_API orStream_t current_native_stream(c10::DeviceIndex device);

c10::Stream default_stream(c10::DeviceIndex device);
OPENREG_API c10::Stream current_stream(c10::DeviceIndex device);

// Makes `stream` current for its device on this thread. Returns the previous current stream.
OPENREG_API c10::Stream exchange_stream(const c10::Stream& stream);

// Returns whether `stream` is being captured. An invalid capture counts until it is ended.
OPENREG_API bool is_capturing(orStream_t stream);

// Waits for `stream`. If kernels on it failed, throws the first error.
OPENREG_API void synchronize_stream(orStream_t stream);

// Returns a stream from the pool. `priority` is clamped to the driver's range (a lower value is
// more urgent).
OPENREG_API c10::Stream pooled_stream(c10::DeviceIndex device, int priority);

// Returns a stream for a driver handle. The caller keeps ownership of the handle.
OPENREG_API c10::Stream external_stream(orStream_t handle, c10::DeviceIndex device);

}  // namespace openreg

#endif  // RUNTIME_C10_STREAM_H_
