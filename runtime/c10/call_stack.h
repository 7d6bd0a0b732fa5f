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

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/openreg.h"

namespace torch {
struct CapturedTraceback;
}

namespace openreg {

using CallStack = std::shared_ptr<torch::CapturedTraceback>;

enum class StackKind : uint8_t {
  kPython,
  kPythonAndCpp,  // slower to capture, and much slower to have in words
};

OPENREG_API CallStack capture_call_stack(StackKind kind = StackKind::kPython);

// The interpreter is about to end: from here on stacks that are captured are null.
OPENREG_API void stop_capturing_call_stacks() noexcept;

// Frames as Python prints them, the innermost one last, each line with its newline; empty for null
// and where no Python runs.
OPENREG_API std::string to_text(const CallStack& stack);

// Several stacks in words. A frame that many have in common is there once.
struct CallFrames {
  struct Frame {
    std::string file;
    uint64_t line;
    std::string function;
  };
  std::vector<Frame> frames;
  std::vector<std::vector<uint64_t>> stacks;  // for each stack its frames, the innermost first
};
// None of them null.
OPENREG_API CallFrames to_frames(const std::vector<CallStack>& stacks);

}  // namespace openreg

#endif  // RUNTIME_C10_CALL_STACK_H_
