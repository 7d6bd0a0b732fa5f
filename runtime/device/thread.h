// SPDX-License-Identifier: BSD-3-Clause
//
// thread.h - the per-thread state of the device, and a function that starts the device's own
// threads.
//
// A ThreadState is used only by its own thread. It is in initial-exec thread-local storage: an
// access is a load relative to the thread pointer instead of a call. The disadvantage is that this
// storage is static TLS, a small amount of memory that all libraries loaded at run time share. The
// struct is therefore small, and error texts are stored elsewhere (error.cc).
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
  bool of_device;           // whether StartThread started the thread
  bool releasing;           // whether the thread is releasing a graph; the release may free memory
  uint8_t capture_mode;     // see orThreadExchangeStreamCaptureMode
  int device;               // the current device
  orError_t last_error;
};
static_assert(sizeof(ThreadState) <= 64);

extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

// Starts a joinable thread with this name (at most 15 characters). The thread has an alternate
// signal stack, because a fault report must run even after a stack overflow. It blocks all signals
// except those that its own faults cause, so the host's threads handle signals that are sent to the
// process. If the operating system refuses, sets errno and returns false.
bool StartThread(pthread_t* thread, const char* name, void (*run)(void*), void* argument);

// Returns the number of CPU cores that this process may use.
int CoreCount();

// Returns whether spinning is useful. It is useful only with more than one core.
inline bool MaySpin() {
  static const bool several_cores = CoreCount() > 1;
  return several_cores;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_THREAD_H_
