// SPDX-License-Identifier: BSD-3-Clause
//
// host_wait.h - what a program does around the waits of its host threads.
//
// Kernels may need a lock that a waiting thread holds: the lock of an interpreter is held by every
// thread that calls a library without care. The owner of such a lock registers hooks, and each wait
// releases the lock meanwhile: waits for a stream, an event or a device, and the wait of a launch
// for room in a full queue. A caller of the driver uses HostWait for its own waits.
//
// A hook may block, so no wait may happen under a lock that a thread takes while it holds the lock
// of the hooks. Where the driver waits under a lock, other threads take that lock by LockForWait.
//
// Threads: all functions may be called from every thread. Hooks are called on the thread that
// waits, which may be one of the driver's.
#ifndef RUNTIME_DEVICE_HOST_WAIT_H_
#define RUNTIME_DEVICE_HOST_WAIT_H_

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

// `begin` is called before a wait, `end` after it with what `begin` has returned.
typedef struct orHostWaitHooks {
  void* (*begin)(void);
  void (*end)(void* state);
} orHostWaitHooks;

// At most one pair per process, which must live until its end; NULL unregisters it. A wait that has
// begun ends with the hooks of its beginning.
OPENREG_API void orSetHostWaitHooks(const orHostWaitHooks* hooks);
OPENREG_API const orHostWaitHooks* orGetHostWaitHooks(void);

#ifdef __cplusplus
}  // extern "C"

#include <mutex>

namespace openreg {

// Calls the hooks around its lifetime.
class HostWait {
 public:
  HostWait()
      : hooks_(orGetHostWaitHooks()), state_(hooks_ != nullptr ? hooks_->begin() : nullptr) {}
  ~HostWait() {
    if (hooks_ != nullptr) {
      hooks_->end(state_);
    }
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  const orHostWaitHooks* const hooks_;
  void* const state_;
};

// Locks a mutex whose holder may wait.
template <class Mutex>
std::unique_lock<Mutex> LockForWait(Mutex& mutex) {
  std::unique_lock<Mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    const HostWait wait;
    lock.lock();
  }
  return lock;
}

}  // namespace openreg
#endif

#endif  // RUNTIME_DEVICE_HOST_WAIT_H_
