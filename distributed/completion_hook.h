// SPDX-License-Identifier: BSD-3-Clause
//
// completion_hook.h - calls a function of the program after each operation of a group
// (ProcessGroup._register_on_completion_hook), on a thread of its own, in the order of calls.
//
// Owned by its process group. The thread looks every 200 us while an operation is under way.
// Threads: any.
#ifndef DISTRIBUTED_COMPLETION_HOOK_H_
#define DISTRIBUTED_COMPLETION_HOOK_H_

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "distributed/work.h"

namespace openreg {

class CompletionHook {
 public:
  using Function = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  explicit CompletionHook(Function function);
  // Does not wait: the function may need what the caller holds, such as the GIL. It is not called
  // any more.
  ~CompletionHook();
  CompletionHook(const CompletionHook&) = delete;
  CompletionHook& operator=(const CompletionHook&) = delete;

  void add(c10::intrusive_ptr<WorkOCCL> work);
  // Until the function has been called for all that was added before.
  void wait();

  // Of the process: none is called any more when it returns. For the end of the interpreter, which
  // a thread must not be in at that time.
  OPENREG_API static void end_all();

  struct State;

 private:
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_COMPLETION_HOOK_H_
