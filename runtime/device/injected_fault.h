// SPDX-License-Identifier: BSD-3-Clause
//
// injected_fault.h - the device's side of the faults that tests inject (fault_injection.h).
#ifndef RUNTIME_DEVICE_INJECTED_FAULT_H_
#define RUNTIME_DEVICE_INJECTED_FAULT_H_

namespace openreg::device {

// True if the allocation, or the kernel, that is about to happen must fail.
bool MallocFaultDue();
bool KernelFaultDue();

// Sleeps for the injected delay of kernels.
void DelayKernel();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_INJECTED_FAULT_H_
