// SPDX-License-Identifier: BSD-3-Clause
//
// Observer - receives the events of a CachingAllocator. The memory history (history.h) is an
// observer.
//
// The caller of set_observer() owns the observer, which must outlive the allocator. observe() runs
// on every thread that uses the allocator, possibly while the thread holds a pool's lock. It must
// not block for long, call the allocator, or acquire the Python interpreter's lock (GIL).
#ifndef RUNTIME_ALLOCATOR_OBSERVER_H_
#define RUNTIME_ALLOCATOR_OBSERVER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/allocator/pool_id.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

// The kind of event. Events for one address are reported in the order in which they happen: memory
// is reported as free before another caller can allocate it.
enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,  // later than kFreeRequested if other streams still use the memory
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
  kSnapshot,
};

struct Event {
  Action action = Action::kAlloc;
  uintptr_t address = 0;  // for kOutOfMemory: bytes that the device could still provide
  size_t size = 0;        // size of the request or of the segment, in bytes
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
