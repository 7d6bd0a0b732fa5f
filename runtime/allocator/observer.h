// SPDX-License-Identifier: BSD-3-Clause
//
// Observer - receives the events of a CachingAllocator. The memory history (history.h) is an
// observer.
//
// The caller of set_observer() owns it; it must outlive the allocator. Every thread that uses the
// allocator calls observe(), possibly while holding a pool's lock. observe() must not block for
// long, call the allocator or take the interpreter's lock.
#ifndef RUNTIME_ALLOCATOR_OBSERVER_H_
#define RUNTIME_ALLOCATOR_OBSERVER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/allocator/pool_id.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

// What happened. Events for one address are reported in the order in which they happen: memory is
// reported free before another caller can get it.
enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,  // later than kFreeRequested if other streams still used the memory
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
  kSnapshot,
};

struct Event {
  Action action = Action::kAlloc;
  uintptr_t address = 0;  // with kOutOfMemory: the bytes that the device could still provide
  size_t size = 0;        // bytes of the request or of the segment
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
