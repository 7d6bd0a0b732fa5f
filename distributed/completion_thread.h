// SPDX-License-Identifier: BSD-3-Clause
//
// completion_thread.h - a thread that calls a function for each operation that has finished or
// failed. It implements the completion hook of a group (ProcessGroup._register_on_completion_hook)
// and the result of a work (Work.get_future_result).
//
// A process group owns the thread of its hook. The results of all works share one thread, which is
// never destroyed. A thread polls every 200 us while an operation is in progress. Any thread may
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
  // Prevents further calls to functions, but does not wait for a running one: that function may
  // need a resource of the caller, such as the GIL.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Returns the thread that completes the futures of Work.get_future_result in this process. A
  // forked child process gets its own thread.
  static CompletionThread& for_results();

  // Calls the function when the work has finished or failed. Keeps the work alive until that time.
  void add(c10::intrusive_ptr<WorkOCCL> work, std::shared_ptr<const Function> function);
  // Waits until the functions of all works that were added earlier have been called.
  void wait();

  // Ends all completion threads in the process. After the return no function is called. Must be
  // called before the interpreter exits, because no thread may run Python code during the exit.
  OPENREG_API static void end_all();

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_COMPLETION_THREAD_H_
