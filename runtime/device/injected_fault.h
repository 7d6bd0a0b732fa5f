// SPDX-License-Identifier: BSD-3-Clause
//
// injected_fault.h - how the device queries the faults that tests inject with fault_injection.h.
// Any thread may call these functions.
#ifndef RUNTIME_DEVICE_INJECTED_FAULT_H_
#define RUNTIME_DEVICE_INJECTED_FAULT_H_

namespace openreg::device {

// Count one allocation or one kernel. Return whether it must fail; the caller then returns the
// error.
bool MallocFaultDue();
bool KernelFaultDue();

// Sleeps for the injected delay. Called before each kernel, copy and fill.
void DelayKernel();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_INJECTED_FAULT_H_
