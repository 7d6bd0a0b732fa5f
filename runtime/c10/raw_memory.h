// SPDX-License-Identifier: BSD-3-Clause
//
// Device memory without a tensor, by its address alone: for other libraries of the process.
//
// Blocks are of the caching allocator, and counted in its statistics. They stay until they are
// deleted. Threads: any, each call takes one lock.
#ifndef RUNTIME_C10_RAW_MEMORY_H_
#define RUNTIME_C10_RAW_MEMORY_H_

#include <cstdint>

#include "runtime/c10/device.h"

namespace openreg {

// `bytes` bytes of `device` for work on `stream`, which is one of it. Null for no bytes.
OPENREG_API void* allocate_raw(int64_t bytes, c10::DeviceIndex device, orStream_t stream);

// Gives back what allocate_raw() gave. Null is fine.
OPENREG_API void free_raw(void* pointer);

}  // namespace openreg

#endif  // RUNTIME_C10_RAW_MEMORY_H_
