// SPDX-License-Identifier: BSD-3-Clause
//
// device_allocator.h - device memory through torch's interface: a c10::DeviceAllocator that uses
// the caching allocator in runtime/allocator (the core).
//
// Each device has one CachingAllocator, which is created at the first allocation. The context of
// each DataPtr is its Block, and the deleter is free_block. Other layers can therefore find the
// block of a storage without a lookup. The core owns the blocks; a DataPtr owns the right to use
// one block. Any thread may call these functions.
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

// Returns torch's allocator for this device type. It is never destroyed.
OPENREG_API c10::DeviceAllocator* device_allocator() noexcept;

// Allocates like DeviceAllocator::allocate(), but on `device`: the current device is neither read
// nor changed. The memory belongs to the current stream of `device`. For a size of 0, returns a
// DataPtr without memory.
OPENREG_API c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes);

// Allocates like allocate_on(), for work on `stream`, which must be a stream of `device`.
c10::DataPtr allocate_on_stream(c10::DeviceIndex device, size_t bytes, orStream_t stream);

// Frees a block. This is the deleter of every DataPtr from this allocator.
OPENREG_API void free_block(void* block);

// Returns the block of a DataPtr. Returns null if the DataPtr has no memory or memory from another
// allocator.
inline allocator::Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &free_block ? static_cast<allocator::Block*>(data.get_context())
                                           : nullptr;
}

// Private pools, with the semantics of torch's other allocators (see CachingAllocator for details).
//
// After begin_allocate_to_pool(), an allocation comes from pool `id` of `device` if `filter`
// accepts its stream. If several filters accept it, the latest begin takes precedence.
// end_allocate_to_pool() ends this thread's latest begin for that pool. If this thread has none, it
// ends the latest begin of any thread.
//
// begin_allocate_to_pool() and use_pool() create the pool if necessary and add one use;
// release_pool() removes one use. When the pool has no use, its free segments return to the device,
// and the pool is deleted with its last segment. The filter is called on the allocating thread
// while none of the allocator's locks is held, and must not allocate. These functions throw
// c10::Error for an invalid id or device.
//
// The first use determines the traits. With last_resort, allocations outside the pool may use its
// free memory before they fail. With whole, each allocation has its own segment.
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
// Returns an id that no pool in this process has ever had: {0, n}, like graph_pool_handle().
OPENREG_API c10::MempoolId_t new_pool_id();

// Limits this process to a fraction of `device`'s memory, from 0 to 1 (default 1). The process
// keeps memory that is already allocated, even if it exceeds the limit.
OPENREG_API void set_memory_fraction(c10::DeviceIndex device, double fraction);
OPENREG_API double memory_fraction(c10::DeviceIndex device);

// Return the core for `device`, for operations that torch's interface lacks. caching_allocator()
// creates the core if necessary; caching_allocator_if_any() returns null before the first
// allocation on `device`. The core is never destroyed.
allocator::CachingAllocator& caching_allocator(c10::DeviceIndex device);
OPENREG_API allocator::CachingAllocator* caching_allocator_if_any(c10::DeviceIndex device) noexcept;

// Finds the block that contains a device address, for a fault report. Returns false if there is no
// such block. Async-signal-safe.
struct BlockRange {
  const void* base;
  size_t size;
  bool in_use;  // false if the block is free
};
OPENREG_API bool find_block(const void* pointer, BlockRange* block) noexcept;

}  // namespace openreg

#endif  // RUNTIME_C10_DEVICE_ALLOCATOR_H_
