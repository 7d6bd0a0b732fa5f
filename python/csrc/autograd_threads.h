// SPDX-License-Identifier: BSD-3-Clause
//
// Waits for torch's autograd threads before the interpreter is finalized.
//
// torch runs a backward pass on one thread per device. The caller continues when the last gradient
// is ready. Shortly afterwards, the device's thread acquires the GIL to release its objects,
// including Python objects. If finalization has started by then, CPython unwinds the thread from
// inside a destructor, and the process aborts although its work is done.
#ifndef PYTHON_CSRC_AUTOGRAD_THREADS_H_
#define PYTHON_CSRC_AUTOGRAD_THREADS_H_

namespace openreg {

// Waits until this process's autograd threads are asleep, but at most one second. Called from a
// Python exit handler. The caller must not hold the GIL.
void wait_for_autograd_threads();

}  // namespace openreg

#endif  // PYTHON_CSRC_AUTOGRAD_THREADS_H_
