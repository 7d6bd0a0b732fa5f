// SPDX-License-Identifier: BSD-3-Clause
//
// completion_hook.h - calls a function of the program after each operation of a group
// (ProcessGroup._register_on_completion_hook), on a separate thread, in the order of the calls.
//
// Owned by its process group. The thread polls every 200 us while an operation is in progress.
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
  // Does not wait, because the function may need something that the caller holds, such as the GIL.
  // The function is not called again.
  ~CompletionHook();
  CompletionHook(const CompletionHook&) = delete;
  CompletionHook& operator=(const CompletionHook&) = delete;

  void add(c10::intrusive_ptr<WorkOCCL> work);
  // Waits until the function has been called for all works added before.
  void wait();

  // Ends all hooks of the process: no function is called after it returns. Call it before the
  // interpreter exits, because no thread may then be inside the interpreter.
  OPENREG_API static void end_all();

  struct State;

 private:
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_COMPLETION_HOOK_H_
