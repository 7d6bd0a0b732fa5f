// SPDX-License-Identifier: BSD-3-Clause
//
// Device memory as torch asks for it: c10::DeviceAllocator over the caching core of
// runtime/allocator.
//
// One CachingAllocator a device, made at the first allocation. A DataPtr of ours has its Block as
// the context and free_block as the deleter, so that a layer above gets from a storage to its block
// without a look-up. Blocks belong to the core; a DataPtr owns the right to use one. Threads: any.
#ifndef RUNTIME_C10_DEVICE_ALLOCATOR_H_
#define RUNTIME_C10_DEVICE_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include "runtime/allocator/block.h"
#include "runtime/c10/device.h"

namespace openreg {

// The allocator that torch knows as the one of device type openreg. Lives for ever.
OPENREG_API c10::DeviceAllocator* device_allocator() noexcept;

// As allocate(), but on `device`: the current device is neither read nor changed. The memory
// belongs to the current stream of that device. No bytes give a DataPtr without memory.
OPENREG_API c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes);

// Deleter of every DataPtr of that allocator.
OPENREG_API void free_block(void* block);

// The block behind a DataPtr; null for memory that is not from this allocator, and for no memory.
inline allocator::Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &free_block ? static_cast<allocator::Block*>(data.get_context())
                                           : nullptr;
}

// Lets the driver's fault report say which block an address lies in.
OPENREG_API void describe_memory_to_driver();

}  // namespace openreg

#endif  // RUNTIME_C10_DEVICE_ALLOCATOR_H_
