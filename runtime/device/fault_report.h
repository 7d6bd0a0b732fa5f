// SPDX-License-Identifier: BSD-3-Clause
//
// fault_report.h - what a process reports before it dies because it touched device memory.
//
// A handler of SIGSEGV and SIGBUS, installed at the first use of the device. It acts only on
// addresses of our reservation: it writes one line to stderr and lets the signal take its course.
// All other faults belong to the handler that was there before, be it a function, the default or
// "ignored". A handler installed after ours, such as Python's faulthandler, which re-raises what it
// got, works too.
#ifndef RUNTIME_DEVICE_FAULT_REPORT_H_
#define RUNTIME_DEVICE_FAULT_REPORT_H_

namespace openreg::device {

// Called once, when the arena exists. A system that refuses leaves the process without a report,
// which is not worth an error.
void InstallFaultReport();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_FAULT_REPORT_H_
