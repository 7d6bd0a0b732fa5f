// SPDX-License-Identifier: BSD-3-Clause
//
// Call stacks: the position of a thread in the Python program.
//
// Capturing a stack takes about a microsecond: it stores code objects and positions in them. The
// files are read only when the stack is converted to text to report an error. All users of one
// capture share one stack, which may be destroyed on any thread. Capturing and conversion acquire
// the GIL if the thread does not hold it, so the caller must hold no other lock. Any thread may
// call these functions, except the device's workers. In a process without Python, stacks are empty.
#ifndef RUNTIME_DIAGNOSTICS_CALL_STACK_H_
#define RUNTIME_DIAGNOSTICS_CALL_STACK_H_

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
  kPythonAndCpp,  // slower to capture and much slower to convert to text
};

OPENREG_API CallStack capture_call_stack(StackKind kind = StackKind::kPython);

// Stops capturing: later captures return null. Must be called when the interpreter is about to
// exit.
OPENREG_API void stop_capturing_call_stacks() noexcept;

// Returns the frames as Python prints them: innermost last, one line each, with its newline.
// Returns an empty string for a null stack, or if Python is not running.
OPENREG_API std::string to_text(const CallStack& stack);

// The frames of several stacks. A frame that several stacks share is stored once.
struct CallFrames {
  struct Frame {
    std::string file;
    uint64_t line;
    std::string function;
  };
  std::vector<Frame> frames;
  // For each stack, the indices of its frames, innermost first.
  std::vector<std::vector<uint64_t>> stacks;
};
// Returns the frames of the stacks. None of the stacks may be null.
OPENREG_API CallFrames to_frames(const std::vector<CallStack>& stacks);

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_CALL_STACK_H_
