// SPDX-License-Identifier: BSD-3-Clause
//
// environment.h - the variables that set up the device.
//
// Read once, at the first call that needs one of them; a value that cannot be understood is an
// error of that call and of all later ones. Callable from every thread.
#ifndef RUNTIME_DEVICE_ENVIRONMENT_H_
#define RUNTIME_DEVICE_ENVIRONMENT_H_

#include <cstddef>
#include <mutex>
#include <string_view>

#include "runtime/device/openreg.h"

namespace openreg::device {

struct Environment {
  orError_t error;  // orSuccess, or what is wrong, in `detail`
  char detail[256];
  int device_count;      // OPENREG_DEVICE_COUNT
  size_t device_memory;  // OPENREG_DEVICE_MEMORY or the default, a multiple of 2 MiB
  bool launch_blocking;  // OPENREG_LAUNCH_BLOCKING
};

// Fails (with the thread's last error) when the environment is not understood.
orError_t GetEnvironment(const Environment** environment);

// orSuccess if there is a device with this index; otherwise fails in the name of `function`.
orError_t CheckDevice(const char* function, int device);

// Held while the variables are read, and across a fork (lifecycle.cc): the child asks again.
std::mutex& EnvironmentMutex();

// "123", "64K", "2M", "1G", "1T". False when it is nothing like that, zero, or too large.
bool ParseBytes(std::string_view text, size_t* bytes);

// Memory this process may use: the smallest of RAM and the limits of its control groups (v1 and
// v2).
size_t MemoryLimit();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ENVIRONMENT_H_
