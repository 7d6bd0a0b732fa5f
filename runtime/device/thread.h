// SPDX-License-Identifier: BSD-3-Clause
//
// thread.h - what the device keeps for each thread, and how it starts threads of its own.
//
// ThreadState belongs to its thread alone. It is in initial-exec thread-local storage: a load
// relative to the thread pointer instead of a call, paid for with static TLS, which libraries that
// are loaded late share. So it stays small, and the text of errors lives elsewhere (error.cc).
#ifndef RUNTIME_DEVICE_THREAD_H_
#define RUNTIME_DEVICE_THREAD_H_

#include <pthread.h>

#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::device {

class ErrorSink;
class Stream;

struct ThreadState {
  Stream* running;          // the stream whose kernel or callback this thread runs, or null
  ErrorSink* sink;          // where that kernel's error goes
  const char* kernel_name;  // of that kernel
  bool kernel_failed;       // that kernel called orKernelFail
  bool has_team;            // that kernel may use a team
  bool of_device;           // started by StartThread
  bool releasing;           // a graph releases what it holds, which may free
  uint8_t capture_mode;     // see orThreadExchangeStreamCaptureMode
  int device;               // the current device
  orError_t last_error;
};
static_assert(sizeof(ThreadState) <= 64);

extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

// Starts a joinable thread with this name (at most 15 characters), an alternate signal stack (a
// fault report has to run when the stack overflowed) and all signals blocked except those for its
// own faults: a signal sent to the process is a matter of the host's threads. Returns false, with
// errno, when the system refuses.
bool StartThread(pthread_t* thread, const char* name, void (*run)(void*), void* argument);

// Number of CPU cores this process may use.
int CoreCount();

// Whether spinning makes sense at all.
inline bool MaySpin() {
  static const bool several_cores = CoreCount() > 1;
  return several_cores;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_THREAD_H_
