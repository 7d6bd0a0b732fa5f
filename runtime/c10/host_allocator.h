// SPDX-License-Identifier: BSD-3-Clause
//
// host_allocator.h - pinned host memory: torch's caching host allocator, which uses orMallocHost.
//
// An asynchronous copy records on its stream that it uses a block (record_pinned_use). If the
// tensor is freed before the copy is done, the block is reused only after an event on that stream.
// Any thread may call these functions.
#ifndef RUNTIME_C10_HOST_ALLOCATOR_H_
#define RUNTIME_C10_HOST_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "runtime/device/openreg.h"

namespace openreg {

c10::Allocator* pinned_allocator() noexcept;

// Returns whether `pointer` lies in pinned memory, which this allocator allocated or the program
// registered. Does not initialize the device.
OPENREG_API bool is_pinned(const void* pointer) noexcept;

// Prevents reuse of the pinned memory of `data` until the work that is queued on `stream` is done.
// Returns false if the memory is not from this allocator; the caller must then keep it alive.
// Records nothing on a captured stream: there, the captured command must own the memory.
OPENREG_API bool record_pinned_use(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_HOST_ALLOCATOR_H_
