// SPDX-License-Identifier: BSD-3-Clause
//
// fault_report.h - the report that a process prints before an invalid access to device memory ends
// it.
//
// A handler for SIGSEGV and SIGBUS writes the report. It is installed at the first use of the
// device. If the faulting address is in the arena, the handler writes one line to stderr. It then
// passes every signal on to the previous handler, whether that is a function, the default action or
// "ignore". A handler that is installed later also works if it raises the signal again, as Python's
// faulthandler does.
#ifndef RUNTIME_DEVICE_FAULT_REPORT_H_
#define RUNTIME_DEVICE_FAULT_REPORT_H_

namespace openreg::device {

// Installs the handler. Called once, after the arena is reserved. If the operating system refuses,
// the process has no fault report; this is not an error.
void InstallFaultReport();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_FAULT_REPORT_H_
