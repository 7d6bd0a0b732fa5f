// SPDX-License-Identifier: BSD-3-Clause
//
// host_wait.h - hooks that run before and after a host thread waits.
//
// Kernels may need a lock that a waiting thread holds. A typical example is an interpreter's lock:
// a thread holds it while it calls a library, unless it explicitly releases it. The owner of such a
// lock registers hooks, which release the lock during each wait: a wait for a stream, an event or a
// device, and the wait of a launch for room in a full queue. Code that uses the driver wraps its
// own waits in HostWait.
//
// A hook may block. A thread must therefore not wait while it holds a lock that another thread may
// take while holding the lock that the hooks release. Where the driver does wait under a lock,
// other threads take that lock with LockForWait.
//
// Any thread may call these functions. Hooks are called on the thread that waits, which may be one
// of the driver's threads.
#ifndef RUNTIME_DEVICE_HOST_WAIT_H_
#define RUNTIME_DEVICE_HOST_WAIT_H_

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

// The hooks. `begin` is called before a wait. `end` is called after the wait, with the value that
// `begin` returned.
typedef struct orHostWaitHooks {
  void* (*begin)(void);
  void (*end)(void* state);
} orHostWaitHooks;

// Registers the hooks. There is at most one pair per process, and it must stay valid until the
// process ends. NULL unregisters it. A wait ends with the hooks with which it began.
OPENREG_API void orSetHostWaitHooks(const orHostWaitHooks* hooks);
OPENREG_API const orHostWaitHooks* orGetHostWaitHooks(void);

#ifdef __cplusplus
}  // extern "C"

#include <mutex>

namespace openreg {

// A scope in which this thread waits: calls `begin` in its constructor and `end` in its destructor.
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

// Locks a mutex whose holder may be waiting. If the mutex is not free, this is itself a wait with
// hooks.
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
