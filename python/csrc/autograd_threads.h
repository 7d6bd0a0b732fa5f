// SPDX-License-Identifier: BSD-3-Clause
//
// torch's autograd threads at the end of the interpreter.
//
// A backward pass runs on a thread of torch for each device. The caller goes on when the last
// gradient is there; a moment later that thread drops what it held, Python objects among them, for
// which it takes the interpreter's lock. If the interpreter has begun to end by then, CPython
// unwinds the thread out of a destructor, and the process aborts after all its work is done.
#ifndef PYTHON_CSRC_AUTOGRAD_THREADS_H_
#define PYTHON_CSRC_AUTOGRAD_THREADS_H_

namespace openreg {

// Waits until the autograd threads of this process sleep, at most a second. The caller must not
// hold the interpreter's lock; it is called when Python's exit handlers run.
void let_autograd_threads_finish();

}  // namespace openreg

#endif  // PYTHON_CSRC_AUTOGRAD_THREADS_H_
