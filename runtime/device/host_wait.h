// SPDX-License-Identifier: BSD-3-Clause
//
// host_wait.h - hooks that run before and after a host thread waits.
//
// A kernel may need a lock that a waiting thread holds. A typical example is the lock of an
// interpreter: a thread that calls a library holds this lock unless it releases it explicitly. The
// owner of such a lock registers hooks, which release the lock during each wait. A wait is a wait
// for a stream, an event or a device, or the wait of a launch for room in a full queue. Code that
// uses the driver wraps its own waits in HostWait.
//
// A hook may block. For example, `end` waits for the interpreter's lock. If a thread waits while it
// holds another lock, and a second thread acquires that lock while it holds the interpreter's lock,
// the two threads deadlock. A thread must therefore not wait while it holds such a lock. Where the
// driver does wait under a lock, all other threads acquire that lock with LockForWait.
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

// Registers the hooks. A process has at most one pair of hooks, which must stay valid until the
// process ends. NULL unregisters it. Each wait calls `end` of the same pair whose `begin` it
// called.
OPENREG_API void orSetHostWaitHooks(const orHostWaitHooks* hooks);
OPENREG_API const orHostWaitHooks* orGetHostWaitHooks(void);

#ifdef __cplusplus
}  // extern "C"

#include <mutex>

namespace openreg {

// A scope in which this thread waits. The constructor calls `begin`, and the destructor calls
// `end`.
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

// Locks a mutex. The thread that holds it may be waiting, so if the mutex is not free, this call is
// also a wait with hooks.
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
