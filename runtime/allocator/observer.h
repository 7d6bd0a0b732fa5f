// SPDX-License-Identifier: BSD-3-Clause
//
// Observer - sees what a CachingAllocator does: memory history (history.h) is one.
//
// It belongs to whoever sets it, and outlives the allocator. observe() is called by every thread
// that uses the allocator, also with the lock of a pool held: it must not wait for long, call the
// allocator or take the interpreter's lock.
#ifndef RUNTIME_ALLOCATOR_OBSERVER_H_
#define RUNTIME_ALLOCATOR_OBSERVER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/allocator/pool_id.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

// For one address, events come in the order in which they happen: memory is reported free before
// anybody else can have it.
enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,  // later than requested where other streams still used the memory
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
  kSnapshot,
};

struct Event {
  Action action = Action::kAlloc;
  uintptr_t address = 0;  // of kOutOfMemory: the bytes that the device could still give
  size_t size = 0;        // bytes that were asked for, or those of the segment
  orStream_t stream = nullptr;
  PoolId pool = kCommonPool;
};

class OPENREG_API Observer {
 public:
  virtual ~Observer() = default;
  virtual void observe(const Event& event) = 0;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_OBSERVER_H_
