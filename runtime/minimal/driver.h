// SPDX-License-Identifier: BSD-3-Clause
//
// driver.h - the state of the driver in this process and in each thread, and the checks with which
// every function of openreg.h begins.
//
// The driver has four parts: this one, memory.h, stream.h (streams and events) and kernels.cc. Each
// is also where its functions of openreg.h are defined; unsupported.cc has the functions of tier 3.
// Every function here may be called from every thread.
#ifndef RUNTIME_MINIMAL_DRIVER_H_
#define RUNTIME_MINIMAL_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::minimal {

struct ThreadState {
  int device = 0;          // current device
  bool in_kernel = false;  // runs a kernel or a host function
  orError_t last_error = orSuccess;
  char detail[512] = "";
};
extern thread_local constinit ThreadState thread_state;

// The environment variables, which are read once. `error` is the error of all calls that need a
// device if a variable is invalid.
struct Settings {
  orError_t error = orSuccess;
  char detail[256] = "";
  int device_count = 2;
  size_t device_memory = 0;
  bool launch_blocking = false;
};
const Settings& GetSettings();

// Sets the last error of this thread and its text. Returns `error`.
[[gnu::format(printf, 2, 3), gnu::cold]] orError_t Fail(orError_t error, const char* format, ...);

// For a function that allocates, queues or waits: initializes the driver at the first use. Fails
// inside kernels, in the child of a fork, and after orShutdown.
orError_t EnterWork(const char* function);
// For a function that only reads: also allowed inside kernels and after orShutdown.
orError_t EnterQuery(const char* function);
// For a function that frees or destroys (BEGIN_RELEASE): also allowed after orShutdown.
orError_t EnterRelease(const char* function);
bool InForkedChild();

orError_t CheckDevice(const char* function, int device);
orError_t FailNull(const char* function, const char* parameter);

bool LaunchBlocking();

}  // namespace openreg::minimal

// Returns from the calling function if `call` fails.
#define RETURN_IF_ERROR(call)                                   \
  do {                                                          \
    if (const orError_t error_ = (call); error_ != orSuccess) { \
      return error_;                                            \
    }                                                           \
  } while (false)

// The same if a parameter of it is null.
#define RETURN_IF_NULL(parameter)            \
  do {                                       \
    if ((parameter) == nullptr) {            \
      return FailNull(__func__, #parameter); \
    }                                        \
  } while (false)

// Begins a function that frees or destroys: it does nothing in the child of a fork.
#define BEGIN_RELEASE()                      \
  do {                                       \
    if (InForkedChild()) {                   \
      return orSuccess;                      \
    }                                        \
    RETURN_IF_ERROR(EnterRelease(__func__)); \
  } while (false)

#endif  // RUNTIME_MINIMAL_DRIVER_H_
