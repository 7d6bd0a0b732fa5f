// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/call_stack.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <atomic>
#include <utility>

namespace openreg {

namespace {

std::atomic<bool> stopped{false};

// A scope in which torch gathers a stack. During this time, torch releases Python code objects
// while it holds a lock. The last reference to a code object may own compiled code, which may in
// turn own device memory. If this memory is freed on the same thread, the free must not acquire
// torch's lock again. It therefore captures no stack, and the memory's own stack is destroyed after
// the gathering.
class GatherScope {
 public:
  GatherScope() { active_ = true; }
  GatherScope(const GatherScope&) = delete;
  GatherScope& operator=(const GatherScope&) = delete;
  ~GatherScope() {
    active_ = false;
    dropped_.clear();
  }

  static bool is_active() { return active_; }

  // The deleter of a second pointer to a stack. The deleter owns the stack.
  struct Drop {
    CallStack stack;
    void operator()(torch::CapturedTraceback* /*stack*/) {
      if (active_) {
        dropped_.push_back(std::move(stack));
      }
    }
  };

 private:
  static inline thread_local bool active_ = false;
  static inline thread_local std::vector<CallStack> dropped_;
};

}  // namespace

void stop_capturing_call_stacks() noexcept { stopped.store(true, std::memory_order_relaxed); }

CallStack capture_call_stack(StackKind kind) {
  if (stopped.load(std::memory_order_relaxed) || GatherScope::is_active()) {
    return nullptr;
  }
  const GatherScope scope;
  CallStack stack = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false,
                                                     /*cpp=*/kind == StackKind::kPythonAndCpp);
  torch::CapturedTraceback* const pointer = stack.get();
  return {pointer, GatherScope::Drop{std::move(stack)}};
}

std::string to_text(const CallStack& stack) {
  if (stack == nullptr) {
    return {};
  }
  const CallFrames found = to_frames({stack});
  std::string text;
  const auto& places = found.stacks.at(0);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const CallFrames::Frame& frame = found.frames.at(*place);
    text +=
        c10::str("  File \"", frame.file, "\", line ", frame.line, ", in ", frame.function, "\n");
  }
  return text;
}

CallFrames to_frames(const std::vector<CallStack>& stacks) {
  std::vector<torch::CapturedTraceback*> pointers;
  pointers.reserve(stacks.size());
  for (const CallStack& stack : stacks) {
    pointers.push_back(stack.get());
  }
  torch::SymbolizedTracebacks found = torch::symbolize(pointers);
  CallFrames result;
  result.stacks = std::move(found.tracebacks);
  for (torch::unwind::Frame& frame : found.all_frames) {
    result.frames.push_back({std::move(frame.filename), frame.lineno, std::move(frame.funcname)});
  }
  return result;
}

}  // namespace openreg
