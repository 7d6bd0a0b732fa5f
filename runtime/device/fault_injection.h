// SPDX-License-Identifier: BSD-3-Clause
//
// fault_injection.h - injected failures, for tests of the layers above the device.
//
// The library exports these functions, but no installed header declares them. While an injection is
// active, no kernel runs inline, so that each one goes through its queue. Process-wide; callable
// from every thread.
#ifndef RUNTIME_DEVICE_FAULT_INJECTION_H_
#define RUNTIME_DEVICE_FAULT_INJECTION_H_

#include <stdint.h>

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

// The nth orMalloc from now (1 is the next) fails once with orErrorOutOfMemory; 0 cancels it.
OPENREG_API orError_t orInjectMallocFailure(uint64_t nth);

// The nth kernel that would run from now fails once with orErrorLaunchFailure and does not run; 0
// cancels it. Copies and fills are not counted.
OPENREG_API orError_t orInjectKernelFailure(uint64_t nth);

// Delays the start of each kernel, copy and fill by this time, so that work that lacks an ordering
// runs in the wrong order. 0 ends it.
OPENREG_API orError_t orInjectKernelDelay(uint64_t nanoseconds);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_FAULT_INJECTION_H_
