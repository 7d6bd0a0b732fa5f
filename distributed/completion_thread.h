// SPDX-License-Identifier: BSD-3-Clause
//
// completion_thread.h - calls a function for each operation that has finished or failed, on a
// thread of its own. It serves the completion hook of a group
// (ProcessGroup._register_on_completion_hook) and the result of a work (Work.get_future_result).
//
// A group's hook is owned by its process group. The results of all works share one thread, which is
// never destroyed. The thread polls every 200 us while an operation is in progress. Any thread may
// call these functions.
#ifndef DISTRIBUTED_COMPLETION_THREAD_H_
#define DISTRIBUTED_COMPLETION_THREAD_H_

#include <functional>
#include <memory>

#include "distributed/work.h"

namespace openreg {

class CompletionThread {
 public:
  using Function = std::function<void(const WorkOCCL&)>;

  // The order in which functions are called: the order of the add() calls, or the order in which
  // the operations end.
  enum class Order { kOfCalls, kOfCompletion };

  explicit CompletionThread(Order order);
  // Does not wait, because a running function may need something that the caller holds, such as the
  // GIL. No further function is called.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Returns the thread that completes Work.get_future_result in this process. A forked child gets
  // its own.
  static CompletionThread& for_results();

  // Calls the function when the work has finished or failed, and keeps the work alive until then.
  void add(c10::intrusive_ptr<WorkOCCL> work, std::shared_ptr<const Function> function);
  // Waits until the functions of all works that were added earlier have been called.
  void wait();

  // Ends all completion threads in the process. No function is called after it returns. Call it
  // before the interpreter exits, because then no thread may be inside the interpreter.
  OPENREG_API static void end_all();

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_COMPLETION_THREAD_H_
