// SPDX-License-Identifier: BSD-3-Clause
//
// executor.h - the single thread that runs parallel kernels.
//
// libgomp keeps a team of threads for every thread that opens a parallel region. If all teams
// together have more threads than there are cores, each region pays for wake-ups. For this reason,
// only one thread, the executor, has a team.
//
// A worker that reaches a parallel kernel passes the watcher role of its stream to the executor.
// The executor then runs the stream's parallel and short kernels, and watches the queue until
// another stream needs the executor. It never runs a command that may wait or that may take long
// without being parallel (waits, host callbacks, ordinary kernels, large copies). To run such a
// command, the worker receives the watcher role back. A wait on one stream therefore cannot delay
// parallel kernels of another stream.
//
// There is one Executor per process, which is never destroyed. Its thread starts with the first
// parallel launch. Any thread may call the functions of Executor. Only the executor's thread calls
// those of ExecutorQueue.
#ifndef RUNTIME_DEVICE_EXECUTOR_H_
#define RUNTIME_DEVICE_EXECUTOR_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg::device {

// The interface through which the executor uses a stream.
class ExecutorQueue {
 public:
  // The reason why DrainOnExecutor returned.
  enum class Outcome : uint8_t {
    kEmpty,
    kHandOver,  // the worker must run the next command
    kYield,     // another stream is waiting for the executor
    kStopped    // the process is exiting
  };

  virtual int priority() const = 0;

  // Runs commands until one of the outcomes applies, and returns that outcome.
  virtual Outcome DrainOnExecutor() = 0;
  // Returns whether the next command needs the executor's team.
  virtual bool NextWantsTeam() const = 0;
  // Returns whether the stream is being destroyed.
  virtual bool Closing() const = 0;

  // Spins for a while. Returns true as soon as the executor has work.
  virtual bool SpinForCommand() const = 0;
  // Announces that the executor is about to sleep. From this call until EndSleep, a producer wakes
  // the executor. Returns false if the executor must not sleep.
  virtual bool BeginSleep() = 0;
  virtual void EndSleep() = 0;

  // Return the watcher role to the parked worker. Unpark() wakes the worker immediately; with
  // OfferToWorker(), it wakes when there is work.
  virtual void Unpark() = 0;
  virtual void OfferToWorker() = 0;

 protected:
  ~ExecutorQueue() = default;
};

class Executor {
 public:
  static Executor& Get();

  // Starts the thread if necessary. Fails if the operating system refuses to start it.
  orError_t Start();

  // Takes over the watcher role for a stream. The stream's next command must be parallel, and its
  // worker must be parked.
  void Submit(ExecutorQueue* queue);

  // Wakes the executor. Called after a command was queued on the stream that the executor watches.
  void Notify();

  // waiting() returns the number of streams that wait for the executor; wanted() returns whether
  // there are any.
  uint32_t waiting() const { return pending_count_.load(std::memory_order_seq_cst); }
  bool wanted() const { return waiting() != 0; }

  // Returns whether a parallel kernel is running. If so, other threads should not spin.
  bool parallel_running() const { return parallel_running_.load(std::memory_order_relaxed); }
  void set_parallel_running(bool running) {
    parallel_running_.store(running, std::memory_order_relaxed);
  }

  // Ends the thread. Must be called when Stopping() is true.
  void ShutDown();

 private:
  void Run();
  ExecutorQueue* TakePending();
  void Sleep(ExecutorQueue* kept);

  std::mutex mutex_;
  std::vector<ExecutorQueue*> pending_;  // ordered by priority, then by order of arrival
  bool joinable_ = false;
  pthread_t thread_{};
  std::atomic<bool> started_{false};
  std::atomic<uint32_t> pending_count_{0};
  std::atomic<uint32_t> signal_{0};  // the executor's futex
  alignas(64) std::atomic<bool> parallel_running_{false};
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EXECUTOR_H_
