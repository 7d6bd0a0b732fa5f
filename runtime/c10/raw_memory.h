// SPDX-License-Identifier: BSD-3-Clause
//
// raw_memory.h - device memory without a tensor, identified by its address. It is for other
// libraries in the process.
//
// Blocks come from the caching allocator and count in its statistics. They stay allocated until
// free_raw() is called. Any thread may call these functions; each call acquires one lock.
#ifndef RUNTIME_C10_RAW_MEMORY_H_
#define RUNTIME_C10_RAW_MEMORY_H_

#include <cstdint>

#include "runtime/c10/device.h"

namespace openreg {

// Allocates `bytes` bytes on `device` for work on `stream`, which must be a stream of that device.
// Returns null for 0 bytes.
OPENREG_API void* allocate_raw(int64_t bytes, c10::DeviceIndex device, orStream_t stream);

// Frees memory from allocate_raw(). Does nothing for null.
OPENREG_API void free_raw(void* pointer);

}  // namespace openreg

#endif  // RUNTIME_C10_RAW_MEMORY_H_
