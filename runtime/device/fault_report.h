// SPDX-License-Identifier: BSD-3-Clause
//
// fault_report.h - the report that a process prints before it dies from an access to device memory.
//
// It is written by a handler of SIGSEGV and SIGBUS, installed at the first use of the device. For a
// fault at an address of our reservation the handler writes one line to stderr. It then passes
// every signal on to the previous handler, whether that is a function, the default action or
// "ignored". A handler that is installed after ours also works if it re-raises the signal, as
// Python's faulthandler does.
#ifndef RUNTIME_DEVICE_FAULT_REPORT_H_
#define RUNTIME_DEVICE_FAULT_REPORT_H_

namespace openreg::device {

// Installs the handler. Called once, after the arena is reserved. If the operating system refuses,
// the process runs without a report; this is not an error.
void InstallFaultReport();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_FAULT_REPORT_H_
