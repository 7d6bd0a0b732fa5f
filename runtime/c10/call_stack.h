// SPDX-License-Identifier: BSD-3-Clause
//
// Call stacks: where in the Python program a thread is.
//
// Capturing one takes about a microsecond: code objects and positions in them. Only its text, which
// is asked for when something went wrong, reads files. It is shared by all who mention the same
// moment, and may be dropped on any thread. Capturing and the text take the interpreter's lock if
// the thread does not have it, so neither may be called with another lock held. Threads: any that
// is not a worker of the device; in a process without Python stacks are empty.
#ifndef RUNTIME_C10_CALL_STACK_H_
#define RUNTIME_C10_CALL_STACK_H_

#include <memory>
#include <string>

#include "runtime/device/openreg.h"

namespace torch {
struct CapturedTraceback;
}

namespace openreg {

using CallStack = std::shared_ptr<torch::CapturedTraceback>;

OPENREG_API CallStack capture_call_stack();

// Frames as Python prints them, the innermost one last, each line with its newline; empty for null
// and where no Python runs.
OPENREG_API std::string to_text(const CallStack& stack);

}  // namespace openreg

#endif  // RUNTIME_C10_CALL_STACK_H_
