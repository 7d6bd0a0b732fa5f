// SPDX-License-Identifier: BSD-3-Clause
//
// executor.h - the one thread that runs parallel kernels.
//
// libgomp keeps a team of threads for every thread that opens a parallel region, and when all teams
// together have more threads than there are cores, each region pays for wake-ups. So there is one
// thread with a team. A worker that meets a parallel kernel gives the watcher role of its stream to
// the executor, which continues with the stream's parallel and short kernels and watches its queue
// until another stream wants the executor. It never runs what may wait or take long without being
// parallel (waits, host callbacks, ordinary kernels, big copies): then the worker gets the watcher
// role back, so that one stream's wait does not hold up another stream's parallel kernels.
//
// One object of the process, never destroyed. Its thread starts with the first parallel launch.
// Threads: the functions of Executor may be called from any; those of ExecutorQueue are called by
// the executor's thread.
#ifndef RUNTIME_DEVICE_EXECUTOR_H_
#define RUNTIME_DEVICE_EXECUTOR_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg::device {

// A stream, as the executor sees it.
class ExecutorQueue {
 public:
  // Why Drain returned.
  enum class Outcome : uint8_t {
    kEmpty,
    kHandOver,  // the next command is for the worker
    kYield,     // another stream waits for the executor
    kStopped    // the process exits
  };

  virtual int priority() const = 0;

  // Runs commands until there is a reason to stop.
  virtual Outcome DrainOnExecutor() = 0;
  // Whether the next command is parallel.
  virtual bool NextWantsTeam() const = 0;
  // The stream is being destroyed.
  virtual bool Closing() const = 0;

  // Spins for a while; true when the executor has something to do.
  virtual bool SpinForCommand() const = 0;
  // From here to EndSleep a producer wakes the executor. False if it must not sleep.
  virtual bool BeginSleep() = 0;
  virtual void EndSleep() = 0;

  // The watcher role returns to the parked worker: now, or when there is work.
  virtual void Unpark() = 0;
  virtual void OfferToWorker() = 0;

 protected:
  ~ExecutorQueue() = default;
};

class Executor {
 public:
  static Executor& Get();

  // Starts the thread if necessary; fails when the system refuses.
  orError_t Start();

  // Takes over the watcher role of a stream whose next command is parallel. Its worker is parked.
  void Submit(ExecutorQueue* queue);

  // Wakes the executor: a command was queued on the stream that it watches.
  void Notify();

  // How many streams wait for the executor, and whether one does.
  uint32_t waiting() const { return pending_count_.load(std::memory_order_seq_cst); }
  bool wanted() const { return waiting() != 0; }

  // A parallel kernel runs: no other thread should spin.
  bool parallel_running() const { return parallel_running_.load(std::memory_order_relaxed); }
  void set_parallel_running(bool running) {
    parallel_running_.store(running, std::memory_order_relaxed);
  }

  // Ends the thread. Called after Stopping() became true.
  void ShutDown();

 private:
  void Run();
  ExecutorQueue* TakePending();
  void Sleep(ExecutorQueue* kept);

  std::mutex mutex_;
  std::vector<ExecutorQueue*> pending_;  // by priority, then by arrival
  bool joinable_ = false;
  pthread_t thread_{};
  std::atomic<bool> started_{false};
  std::atomic<uint32_t> pending_count_{0};
  std::atomic<uint32_t> signal_{0};  // the executor's futex
  alignas(64) std::atomic<bool> parallel_running_{false};
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EXECUTOR_H_
