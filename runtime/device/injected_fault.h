// SPDX-License-Identifier: BSD-3-Clause
//
// injected_fault.h - what the device asks about faults that a test injects (fault_injection.h).
#ifndef RUNTIME_DEVICE_INJECTED_FAULT_H_
#define RUNTIME_DEVICE_INJECTED_FAULT_H_

namespace openreg::device {

// True when the allocation, or the kernel, that is about to happen is the one which has to fail.
bool MallocFaultDue();
bool KernelFaultDue();

// Sleeps as long as kernels are to be delayed.
void DelayKernel();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_INJECTED_FAULT_H_
