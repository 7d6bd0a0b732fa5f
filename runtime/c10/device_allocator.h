// SPDX-License-Identifier: BSD-3-Clause
//
// Device memory as torch asks for it: c10::DeviceAllocator over the caching core of
// runtime/allocator.
//
// One CachingAllocator per device, made at the first allocation. The context of each DataPtr is its
// Block and the deleter is free_block, so that a layer above gets from a storage to its block
// without a look-up. Blocks belong to the core; a DataPtr owns the right to use one. Threads: any.
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

// The allocator that torch knows for device type openreg. Lives forever.
OPENREG_API c10::DeviceAllocator* device_allocator() noexcept;

// As allocate(), but on `device`: the current device is neither read nor changed. The memory
// belongs to the current stream of that device. No bytes give a DataPtr without memory.
OPENREG_API c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes);

// The same for work on `stream`, which is one of that device.
c10::DataPtr allocate_on_stream(c10::DeviceIndex device, size_t bytes, orStream_t stream);

// Deleter of every DataPtr of that allocator.
OPENREG_API void free_block(void* block);

// The block behind a DataPtr; null for memory that is not from this allocator, and for no memory.
inline allocator::Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &free_block ? static_cast<allocator::Block*>(data.get_context())
                                           : nullptr;
}

// Private pools, by the rules of torch's other allocators (see CachingAllocator for each). From
// begin_allocate_to_pool() on, an allocation whose stream `filter` accepts comes from pool `id` of
// `device`; the latest begin is asked first. end_allocate_to_pool() ends the latest begin of that
// pool by this thread or, if there is none, by any thread. begin and use_pool make the pool if
// there is none and add one use; release_pool removes one. Free segments of a pool without a use go
// back to the device (at the next emptyCache, or when memory is needed), and the pool ends with its
// last segment. The filter is called on the allocating thread without any lock of the allocator,
// and must not allocate. c10::Error for an id or a device that does not fit.
//
// The traits are those of the first use. last_resort: the pool's free memory serves allocations
// outside of it before they fail. whole: each allocation has a segment of its own.
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
// An id that no pool of the process has had: {0, n}, as graph_pool_handle() gives.
OPENREG_API c10::MempoolId_t new_pool_id();

// The part of `device`'s memory that this process may take, from 0 to 1; 1 at the beginning. The
// process keeps memory that it holds already.
OPENREG_API void set_memory_fraction(c10::DeviceIndex device, double fraction);
OPENREG_API double memory_fraction(c10::DeviceIndex device);

// The core of `device`, for what torch's interface has no function for. The first makes it if
// necessary, the second returns null before the first allocation there. Lives forever.
allocator::CachingAllocator& caching_allocator(c10::DeviceIndex device);
OPENREG_API allocator::CachingAllocator* caching_allocator_if_any(c10::DeviceIndex device) noexcept;

// The block that a device address lies in, for the report of a fault. False if there is none.
// Async-signal-safe.
struct BlockRange {
  const void* base;
  size_t size;
  bool in_use;  // false: it is free
};
OPENREG_API bool find_block(const void* pointer, BlockRange* block) noexcept;

}  // namespace openreg

#endif  // RUNTIME_C10_DEVICE_ALLOCATOR_H_
