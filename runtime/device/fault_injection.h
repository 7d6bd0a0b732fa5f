// SPDX-License-Identifier: BSD-3-Clause
//
// fault_injection.h - failures that a test injects, for tests of the layers above the device.
//
// The library exports these functions, but no installed header declares them. While an injection is
// active, no kernel runs inline, so every kernel uses its stream's queue. The settings apply to the
// whole process. Any thread may call these functions.
#ifndef RUNTIME_DEVICE_FAULT_INJECTION_H_
#define RUNTIME_DEVICE_FAULT_INJECTION_H_

#include <stdint.h>

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes the nth orMalloc from now fail once with orErrorOutOfMemory (1 is the next one). 0 cancels
// the injection.
OPENREG_API orError_t orInjectMallocFailure(uint64_t nth);

// Makes the nth kernel from now fail once with orErrorLaunchFailure. The kernel does not run.
// Copies and fills are not counted. 0 cancels the injection.
OPENREG_API orError_t orInjectKernelFailure(uint64_t nth);

// Delays the start of each kernel, copy and fill by this time. Work with a missing dependency then
// runs in the wrong order. 0 ends the delays.
OPENREG_API orError_t orInjectKernelDelay(uint64_t nanoseconds);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_FAULT_INJECTION_H_
