// SPDX-License-Identifier: BSD-3-Clause
//
// injected_fault.h - functions with which the device queries the faults that tests inject
// (fault_injection.h). Any thread may call these functions.
#ifndef RUNTIME_DEVICE_INJECTED_FAULT_H_
#define RUNTIME_DEVICE_INJECTED_FAULT_H_

namespace openreg::device {

// Count one allocation or one kernel. If they return true, the caller must fail.
bool MallocFaultDue();
bool KernelFaultDue();

// Sleeps for the injected delay. Called before each kernel, copy and fill.
void DelayKernel();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_INJECTED_FAULT_H_
