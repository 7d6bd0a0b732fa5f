// SPDX-License-Identifier: BSD-3-Clause
//
// thread.h - the per-thread state of the device, and how the device starts its own threads.
//
// A ThreadState is used only by its thread. It uses initial-exec thread-local storage: an access is
// a load relative to the thread pointer instead of a call. The cost is static TLS, which all
// libraries that are loaded late share. So the struct stays small, and the text of errors is stored
// elsewhere (error.cc).
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
  ErrorSink* sink;          // receives the error of that kernel
  const char* kernel_name;  // the name of that kernel
  bool kernel_failed;       // whether that kernel called orKernelFail
  bool has_team;            // whether that kernel may use a team
  bool of_device;           // whether StartThread started this thread
  bool releasing;           // whether the thread releases a graph, which may free
  uint8_t capture_mode;     // see orThreadExchangeStreamCaptureMode
  int device;               // the current device
  orError_t last_error;
};
static_assert(sizeof(ThreadState) <= 64);

extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

// Starts a joinable thread with this name (at most 15 characters), an alternate signal stack (a
// fault report must run after a stack overflow), and all signals blocked except those of its own
// faults: the host's threads handle the signals sent to the process. Returns false, with errno set,
// if the operating system refuses.
bool StartThread(pthread_t* thread, const char* name, void (*run)(void*), void* argument);

// Returns the number of CPU cores that this process may use.
int CoreCount();

// Returns whether spinning makes sense: only with more than one core.
inline bool MaySpin() {
  static const bool several_cores = CoreCount() > 1;
  return several_cores;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_THREAD_H_
