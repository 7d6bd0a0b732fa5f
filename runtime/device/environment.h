// SPDX-License-Identifier: BSD-3-Clause
//
// environment.h - the environment variables that configure the device.
//
// The variables are read once, by the first call that needs one of them. If a value is invalid,
// that call and all later calls return the error. Any thread may call these functions.
#ifndef RUNTIME_DEVICE_ENVIRONMENT_H_
#define RUNTIME_DEVICE_ENVIRONMENT_H_

#include <cstddef>
#include <mutex>
#include <string_view>

#include "runtime/device/openreg.h"

namespace openreg::device {

struct Environment {
  orError_t error;  // orSuccess, or the error that `detail` describes
  char detail[256];
  int device_count;      // OPENREG_DEVICE_COUNT
  size_t device_memory;  // OPENREG_DEVICE_MEMORY or the default, a multiple of 2 MiB
  bool launch_blocking;  // OPENREG_LAUNCH_BLOCKING
};

// Returns the values. The first call reads them. If a variable is invalid, fails and sets the
// thread's last error.
orError_t GetEnvironment(const Environment** environment);

// Returns orSuccess if there is a device with this index. Otherwise, fails with `function` in the
// message.
orError_t CheckDevice(const char* function, int device);

// Returns the mutex that is held while the variables are read. It is also held across a fork
// (lifecycle.cc), because the child reads the variables again.
std::mutex& EnvironmentMutex();

// Parses a size such as "123", "64K", "2M", "1G" or "1T". Returns false for any other text, for
// zero, and on overflow.
bool ParseBytes(std::string_view text, size_t* bytes);

// Returns the number of bytes of memory that this process may use: the minimum of RAM and the
// limits of its control groups (v1 and v2).
size_t MemoryLimit();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ENVIRONMENT_H_
