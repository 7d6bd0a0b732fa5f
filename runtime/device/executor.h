// SPDX-License-Identifier: BSD-3-Clause
//
// executor.h - the one thread that runs parallel kernels.
//
// libgomp keeps a team of threads for every thread that opens a parallel region, and when all teams
// together have more threads than there are cores, each region pays for wake-ups. So there is one
// thread with a team. A worker which meets a parallel kernel gives the duty for its stream to the
// executor; that goes on with the stream's parallel and short kernels and watches its queue, as
// long as no other stream wants it. It never runs what may wait or take long without being parallel
// (waits, host callbacks, ordinary kernels, big copies): then the worker gets the duty back, so one
// stream's waiting does not hold up another's parallel kernels.
//
// One object of the process, never destroyed. Its thread starts with the first parallel launch.
#ifndef RUNTIME_DEVICE_EXECUTOR_H_
#define RUNTIME_DEVICE_EXECUTOR_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg::device {

class Stream;

class Executor {
 public:
  static Executor& Get();

  // Starts the thread if need be; fails when the system refuses.
  orError_t Start();

  // Takes over the duty for a stream whose next command is parallel. Its worker is parked.
  void Submit(Stream* stream);

  // Has the executor look around: a command was queued on the stream that it watches.
  void Notify();

  // How many streams wait for the executor, and whether one does.
  uint32_t waiting() const { return pending_count_.load(std::memory_order_seq_cst); }
  bool wanted() const { return waiting() != 0; }

  // A parallel kernel runs: nobody else should spin.
  bool parallel_running() const { return parallel_running_.load(std::memory_order_relaxed); }
  void set_parallel_running(bool running) {
    parallel_running_.store(running, std::memory_order_relaxed);
  }

  // Ends the thread. Called after Stopping() became true.
  void ShutDown();

 private:
  void Run();
  Stream* TakePending();
  void Sleep(Stream* kept);

  std::mutex mutex_;
  std::vector<Stream*> pending_;  // by priority, then by arrival
  bool joinable_ = false;
  pthread_t thread_{};
  std::atomic<bool> started_{false};
  std::atomic<uint32_t> pending_count_{0};
  std::atomic<uint32_t> signal_{0};  // the executor's futex
  alignas(64) std::atomic<bool> parallel_running_{false};
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EXECUTOR_H_
