// SPDX-License-Identifier: BSD-3-Clause
//
// device_allocator.h - device memory through torch's interface: c10::DeviceAllocator over the
// caching core in runtime/allocator.
//
// Each device has one CachingAllocator, created at the first allocation. The context of each
// DataPtr is its Block and the deleter is free_block, so that other layers get from a storage to
// its block without a look-up. The core owns the blocks; a DataPtr owns the right to use one.
// Threads: any.
#ifndef RUNTIME_C10_DEVICE_ALLOCATOR_H_
#define RUNTIME_C10_DEVICE_ALLOCATOR_H_

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>

#include "runtime/allocator/block.h"
#include "runtime/c10/device.h"

namespace openreg {

namespace allocator {
class CachingAllocator;
}

// Returns torch's allocator for device type openreg, which is never destroyed.
OPENREG_API c10::DeviceAllocator* device_allocator() noexcept;

// Allocates like allocate(), but on `device`: the current device is neither read nor changed. The
// memory belongs to the current stream of that device. A size of 0 gives a DataPtr without memory.
OPENREG_API c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes);

// Allocates like allocate_on(), for work on `stream`, which must be a stream of `device`.
c10::DataPtr allocate_on_stream(c10::DeviceIndex device, size_t bytes, orStream_t stream);

// Frees a block. This is the deleter of every DataPtr from this allocator.
OPENREG_API void free_block(void* block);

// Returns the block behind a DataPtr, or null if it has no memory or the memory is from elsewhere.
inline allocator::Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &free_block ? static_cast<allocator::Block*>(data.get_context())
                                           : nullptr;
}

// Private pools, with the semantics of torch's other allocators (details in CachingAllocator).
// After begin_allocate_to_pool(), an allocation comes from pool `id` of `device` if `filter`
// accepts its stream; the latest begin takes precedence. end_allocate_to_pool() ends the latest
// begin of that pool by this thread, or by any thread if this thread has none.
// begin_allocate_to_pool() and use_pool() create the pool if necessary and add one use;
// release_pool() removes one. Free segments of an unused pool return to the device at the next
// emptyCache() or when memory is needed; the pool is deleted with its last segment. The filter is
// called on the allocating thread without any lock of the allocator and must not allocate. Throws
// c10::Error for an invalid id or device.
//
// The first use determines the traits. last_resort: allocations outside of the pool may take its
// free memory before they fail. whole: each allocation has a segment of its own.
struct PoolTraits {
  bool last_resort = false;
  bool whole = false;
};
OPENREG_API void use_pool(c10::DeviceIndex device, c10::MempoolId_t id, PoolTraits traits = {});
OPENREG_API void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id,
                                        std::function<bool(orStream_t)> filter);
OPENREG_API void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id);
OPENREG_API void release_pool(c10::DeviceIndex device, c10::MempoolId_t id);
OPENREG_API bool pool_exists(c10::DeviceIndex device, c10::MempoolId_t id);
OPENREG_API int64_t pool_use_count(c10::DeviceIndex device, c10::MempoolId_t id);
// Returns an id that no pool of this process has had: {0, n}, as graph_pool_handle() does.
OPENREG_API c10::MempoolId_t new_pool_id();

// Limits this process to a fraction of `device`'s memory, from 0 to 1 (default 1). The process
// keeps memory that it already holds.
OPENREG_API void set_memory_fraction(c10::DeviceIndex device, double fraction);
OPENREG_API double memory_fraction(c10::DeviceIndex device);

// Return the core of `device`, for operations that torch's interface lacks. The first function
// creates it if necessary; the second returns null before the first allocation on `device`. The
// core is never destroyed.
allocator::CachingAllocator& caching_allocator(c10::DeviceIndex device);
OPENREG_API allocator::CachingAllocator* caching_allocator_if_any(c10::DeviceIndex device) noexcept;

// Finds the block that contains a device address, for a fault report. Returns false if there is
// none. Async-signal-safe.
struct BlockRange {
  const void* base;
  size_t size;
  bool in_use;  // false if the block is free
};
OPENREG_API bool find_block(const void* pointer, BlockRange* block) noexcept;

}  // namespace openreg

#endif  // RUNTIME_C10_DEVICE_ALLOCATOR_H_
