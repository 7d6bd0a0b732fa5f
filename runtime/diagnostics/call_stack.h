// SPDX-License-Identifier: BSD-3-Clause
//
// Call stacks: where a thread is in the Python program.
//
// Capturing one takes about a microsecond: it keeps code objects and positions in them. Only its
// text, which is made when an error is reported, reads files. Everybody who refers to the same
// moment shares one stack; it may be dropped on any thread. Capturing and making the text take the
// GIL if the thread does not hold it, so the caller must hold no other lock. Threads: any except
// workers of the device; in a process without Python stacks are empty.
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
  kPythonAndCpp,  // slower to capture, and much slower to convert to text
};

OPENREG_API CallStack capture_call_stack(StackKind kind = StackKind::kPython);

// The interpreter is about to end: from now on captured stacks are null.
OPENREG_API void stop_capturing_call_stacks() noexcept;

// Frames as Python prints them, the innermost one last, each line with its newline; empty for null
// and where no Python runs.
OPENREG_API std::string to_text(const CallStack& stack);

// The frames of several stacks. A frame that several stacks have in common is there once.
struct CallFrames {
  struct Frame {
    std::string file;
    uint64_t line;
    std::string function;
  };
  std::vector<Frame> frames;
  std::vector<std::vector<uint64_t>> stacks;  // for each stack its frames, the innermost first
};
// No stack may be null.
OPENREG_API CallFrames to_frames(const std::vector<CallStack>& stacks);

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_CALL_STACK_H_
