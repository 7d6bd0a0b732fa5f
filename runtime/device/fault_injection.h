// SPDX-License-Identifier: BSD-3-Clause
//
// fault_injection.h - failures on demand, for tests of what is above the device.
//
// The library exports these functions; no installed header names them. While any of them is in
// force no kernel runs inline, so that each goes through its queue. Process-wide; callable from
// every thread.
#ifndef RUNTIME_DEVICE_FAULT_INJECTION_H_
#define RUNTIME_DEVICE_FAULT_INJECTION_H_

#include <stdint.h>

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

// The nth orMalloc from now (1 is the next) fails once with orErrorOutOfMemory; 0 takes that back.
OPENREG_API orError_t orInjectMallocFailure(uint64_t nth);

// The nth kernel to run from now does not run but fails with orErrorLaunchFailure, once; 0 takes
// that back. Copies and fills are not counted.
OPENREG_API orError_t orInjectKernelFailure(uint64_t nth);

// Each kernel, copy and fill starts this much later: work that is not ordered as it should be then
// happens in the wrong order. 0 ends it.
OPENREG_API orError_t orInjectKernelDelay(uint64_t nanoseconds);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_FAULT_INJECTION_H_
