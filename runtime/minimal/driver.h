// SPDX-License-Identifier: BSD-3-Clause
//
// driver.h - the driver's state in this process and in each thread, and the checks at the start of
// every openreg.h function.
//
// The driver has four parts: this one, memory.h, stream.h (streams and events) and kernels.cc. Each
// part defines its own functions of openreg.h. unsupported.cc defines the tier 3 functions. Any
// thread may call the functions in this header.
#ifndef RUNTIME_MINIMAL_DRIVER_H_
#define RUNTIME_MINIMAL_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::minimal {

struct ThreadState {
  int device = 0;          // current device
  bool in_kernel = false;  // whether the thread runs a kernel or a host function
  orError_t last_error = orSuccess;
  char detail[512] = "";
};
extern thread_local constinit ThreadState thread_state;

// The values of the environment variables, which are read once. If a variable is invalid, every
// call that needs a device returns `error`.
struct Settings {
  orError_t error = orSuccess;
  char detail[256] = "";
  int device_count = 2;
  size_t device_memory = 0;
  bool launch_blocking = false;
};
const Settings& GetSettings();

// Sets this thread's last error and the error's text. Returns `error`.
[[gnu::format(printf, 2, 3), gnu::cold]] orError_t Fail(orError_t error, const char* format, ...);

// Called by functions that allocate, queue or wait. Initializes the driver when it is first used.
// Fails inside kernels, in a forked child, and after orShutdown.
orError_t EnterWork(const char* function);
// Called by functions that only read. Also succeeds inside kernels and after orShutdown.
orError_t EnterQuery(const char* function);
// Called by functions that free or destroy (BEGIN_RELEASE). Also succeeds after orShutdown.
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

// Returns from the calling function with an error if one of its parameters is null.
#define RETURN_IF_NULL(parameter)            \
  do {                                       \
    if ((parameter) == nullptr) {            \
      return FailNull(__func__, #parameter); \
    }                                        \
  } while (false)

// Begins a function that frees or destroys. In a forked child, such a function does nothing.
#define BEGIN_RELEASE()                      \
  do {                                       \
    if (InForkedChild()) {                   \
      return orSuccess;                      \
    }                                        \
    RETURN_IF_ERROR(EnterRelease(__func__)); \
  } while (false)

#endif  // RUNTIME_MINIMAL_DRIVER_H_
