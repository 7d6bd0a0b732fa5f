// SPDX-License-Identifier: BSD-3-Clause
//
// Pinned host memory: torch's caching host allocator over orMallocHost.
//
// A block that an asynchronous copy uses is recorded on the stream of the copy (record_pinned_use);
// if its tensor is freed before the copy is done, the block waits for an event of that stream.
// Threads: any.
#ifndef RUNTIME_C10_HOST_ALLOCATOR_H_
#define RUNTIME_C10_HOST_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "runtime/device/openreg.h"

namespace openreg {

c10::Allocator* pinned_allocator() noexcept;

// Whether `pointer` lies in pinned memory, ours or registered. Starts nothing.
OPENREG_API bool is_pinned(const void* pointer) noexcept;

// Keeps the pinned memory of `data` from reuse until the work that is queued on `stream` is done.
// False if the memory is not from this allocator; the caller must then keep it alive. If the stream
// is captured nothing is recorded: the captured command must own the memory.
OPENREG_API bool record_pinned_use(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace openreg

#endif  // RUNTIME_C10_HOST_ALLOCATOR_H_
