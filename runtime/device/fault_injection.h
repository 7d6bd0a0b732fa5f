// SPDX-License-Identifier: BSD-3-Clause
//
// fault_injection.h - injected failures, for testing the layers above the device.
//
// The library exports these functions, but no installed header declares them. While an injection is
// active, no kernel runs inline, so every kernel goes through its stream's queue. The settings
// apply to the whole process. Any thread may call these functions.
#ifndef RUNTIME_DEVICE_FAULT_INJECTION_H_
#define RUNTIME_DEVICE_FAULT_INJECTION_H_

#include <stdint.h>

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes the nth orMalloc from now (1 is the next) fail once with orErrorOutOfMemory. Passing 0
// cancels the injection.
OPENREG_API orError_t orInjectMallocFailure(uint64_t nth);

// Makes the nth kernel from now fail once with orErrorLaunchFailure, without running. Copies and
// fills are not counted. Passing 0 cancels the injection.
OPENREG_API orError_t orInjectKernelFailure(uint64_t nth);

// Delays the start of each kernel, copy and fill by this time, so that work with a missing
// dependency runs in the wrong order. Passing 0 ends the delays.
OPENREG_API orError_t orInjectKernelDelay(uint64_t nanoseconds);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_FAULT_INJECTION_H_
