// SPDX-License-Identifier: BSD-3-Clause
//
// driver.h - the description of a driver for the conformance suite.
//
// The suite tests every function of openreg.h through that header alone. Two things differ between
// drivers: the optional parts that a driver has, and the way in which a program obtains a kernel.
// The test of a driver defines TestedDriver() and links the suite (see docs/device.md):
//
//   const openreg::cts::Driver& openreg::cts::TestedDriver() {
//     static const Driver driver{kTier2 | kGraphs, LaunchFill, LaunchFailing};
//     return driver;
//   }
#ifndef RUNTIME_DEVICE_CTS_DRIVER_H_
#define RUNTIME_DEVICE_CTS_DRIVER_H_

#include "runtime/device/openreg.h"

namespace openreg::cts {

// Optional parts of the interface. If a driver does not have a part of tier 3, the suite checks
// that the functions of this part return orErrorNotSupported. (Tier 1 is not optional.)
enum Tag : unsigned {
  kTier2 = 1,
  kGraphs = 2,
  kSharing = 4,  // memory and events shared by processes
  kActivity = 8,
};

struct Driver {
  unsigned tags;

  // Queues a kernel that writes `value` to `count` 32-bit words of device memory.
  orError_t (*launch_fill)(orStream_t stream, void* memory, size_t count, uint32_t value);

  // Queues a kernel that fails with orErrorLaunchFailure when it runs. The launch itself succeeds.
  orError_t (*launch_failing)(orStream_t stream);
};

const Driver& TestedDriver();

}  // namespace openreg::cts

#endif  // RUNTIME_DEVICE_CTS_DRIVER_H_
