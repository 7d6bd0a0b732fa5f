// SPDX-License-Identifier: BSD-3-Clause
//
// stream.h - a queue of commands and the threads that run them.
//
// A stream is a ring of fixed-size commands. Positions increase monotonically: command number p is
// done when done() > p, and `tail` is the number of commands queued so far. Neither of them is
// reset when the stream's slot is reused, so a (stream, position) pair always keeps its meaning. An
// event stores only such a pair.
//
// Three kinds of threads run commands:
//   - The stream's worker, which starts with the first command.
//   - The executor, for parallel kernels. The worker passes it the watcher role, and the executor
//     returns it (executor.h).
//   - The launching thread, for a cheap kernel on an idle stream.
// A thread that runs commands holds the stream's execution token, so there is only one consumer at
// a time. The watcher is the thread that must wake up when a command is queued:
//
//   producer        acquires the lock, writes the command, increments `tail`, releases the lock;
//                   wakes the watcher if it is asleep
//   worker/executor acquires the token, runs commands until the ring is empty, releases the token;
//                   watches the tail for some microseconds, then sleeps
//   inline          if the stream is idle and the token is free: acquires the token, runs the
//                   kernel, releases the token
//
// No wake-up is lost between producer and consumer. The producer stores `tail` and then loads
// `watch`; the consumer stores `watch` and then loads `tail`. All four operations are sequentially
// consistent, so at least one of the two threads sees the other's store. An inline launch does not
// need this protocol: a producer that queues a command during the launch wakes the worker, and the
// worker waits for the token without a long sleep. The consumer and the threads that wait for a
// position use the same protocol with `done` and `wake_at`.
//
// Only a StreamQueue queues commands. Only Submission (submission.h) creates a StreamQueue, after
// it has consulted the stream's capture. Any thread may call all other functions in this file.
//
// The registry (stream_registry.h) owns the streams, which are never freed.
#ifndef RUNTIME_DEVICE_STREAM_H_
#define RUNTIME_DEVICE_STREAM_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/device/activity.h"
#include "runtime/device/error.h"
#include "runtime/device/executor.h"
#include "runtime/device/handle.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process.h"
#include "runtime/device/spin_wait.h"
#include "runtime/device/thread.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::device {

class Capture;
class Stream;

struct Command {
  enum Kind : uint8_t {
    kKernel,
    kCopy,  // a kernel of the device itself
    kHostFunction,
    kWait,  // wait until `source` reaches `position`
    kStep   // call `step` repeatedly until it reports that the command is done
  };
  // Specifies which of the stream's consumers may run the command.
  enum Place : uint8_t {
    kOnWorker,  // the command may wait or take long
    kAnywhere,
    kMoldable,   // the executor with its team if a team is worth its cost, otherwise any
    kOnExecutor  // the command needs the team
  };
  Kind kind;
  Place place;
  bool recorded;  // if true, Stream::activity() must be written after the command has run
  const char* name;
  union {
    orKernelFunction_t kernel;
    orHostFn_t function;
    bool (*step)(Stream* stream, Command* command, bool with_team);
  };
  union {
    void* data;
    Stream* source;
  };
  uint64_t position;     // the position that a kWait waits for; a kStep may store any value here
  uint64_t work_before;  // the result of AddWork, for a command that may use a team
  ErrorSink* sink;       // receives the error of the command
  alignas(64) unsigned char arguments[OPENREG_MAX_ARGUMENT_BYTES];
};
static_assert(sizeof(Command) == 512);

class alignas(64) Stream final : public HandleSlot, private ExecutorQueue {
 public:
  static constexpr unsigned kIndexBits = 12;  // limits the number of streams
  static constexpr uint64_t kRing = 256;      // capacity of the queue in commands
  static constexpr int kGreatestPriority = -3;
  static constexpr int kLeastPriority = 0;

  int device() const { return device_.load(std::memory_order_relaxed); }
  int priority() const override { return priority_.load(std::memory_order_relaxed); }
  ErrorSink& sink() { return sink_; }

  // Return the number of commands that were queued so far, and the number of those that are done.
  uint64_t tail() const { return tail_.load(std::memory_order_acquire); }
  uint64_t done() const { return done_.load(std::memory_order_acquire); }

  // Returns the capture to which this stream belongs, or null. Captures sets it while it holds its
  // lock.
  Capture* capture() const { return capture_.load(std::memory_order_acquire); }
  void set_capture(Capture* capture) { capture_.store(capture, std::memory_order_release); }

  // Returns whether no command is queued and none is running.
  bool Idle() const;

  // Returns the position at which the current user of the slot began.
  uint64_t first_position() const { return first_position_.load(std::memory_order_acquire); }

  // Makes the command report `activity` after it has run, with its start and end times. May be
  // called only within `fill` of StreamQueue::Enqueue.
  void Record(Command* command, const orActivity& activity);
  // Returns the activity record of a command with `recorded` set. Must be called on the thread that
  // runs the command.
  const orActivity& activity(const Command& command) const {
    return activities_[static_cast<size_t>(&command - ring_.get())];
  }

  // Adds work that may use a team, in nanoseconds on one thread. Returns the sum before the
  // addition. The sum is never reset. May be called only within `fill` of StreamQueue::Enqueue.
  uint64_t AddWork(uint64_t nanoseconds) {
    const uint64_t before = work_.load(std::memory_order_relaxed);
    work_.store(before + nanoseconds, std::memory_order_relaxed);
    return before;
  }

  // RunQueuedKernel() runs a queued kernel, with injected faults. RunHostFunction() runs a host
  // function. Both are called on the thread that runs the commands of this stream.
  void RunQueuedKernel(Command::Kind kind, orKernelFunction_t kernel, void* arguments,
                       const char* name, ErrorSink* sink, bool with_team);
  void RunHostFunction(orHostFn_t function, void* data, const char* name, ErrorSink* sink);

  // Implements orKernelFail, on the thread that runs a kernel of this stream.
  void KeepFailure(orError_t error, const char* message, void* payload, void (*drop)(void*));

  // Waits until done() >= position. Returns false if the process is exiting and the stream will
  // never reach the position.
  bool WaitFor(uint64_t position);

  // Waits until all currently queued work is done, including a kernel that another thread runs
  // inline. Returns false in the same case as WaitFor.
  bool WaitIdle();

 private:
  friend class StreamQueue;
  friend class Streams;

  // Specifies the thread that has the watcher role, and whether this thread sleeps.
  enum Watch : uint32_t { kWatched = 0, kWorkerSleeps = 1, kExecutorSleeps = 2 };
  enum Token : uint32_t { kFree = 0, kConsumer = 1, kInline = 2 };
  enum class Role { kWorker, kExecutor };

  // Implement the functions of StreamQueue. `expected` is the handle that the caller looked up. If
  // the stream has been destroyed since then, they fail.
  bool TryInline(uint64_t expected, orKernelFunction_t kernel, const void* arguments, size_t size,
                 const char* name, ErrorSink* sink);
  template <class Fill>
  orError_t Enqueue(uint64_t expected, uint64_t* position, Fill&& fill);
  orError_t BeginEnqueue(uint64_t expected, Command** command);
  [[gnu::cold, gnu::noinline]] orError_t WaitForRoom(uint64_t expected);
  [[gnu::cold, gnu::noinline]] void WakeConsumer();
  [[gnu::cold, gnu::noinline]] bool StartWorker();

  bool AcquireToken();
  bool AcquireSoon(uint32_t token);  // called by an inline launch if the token is not free
  void RunKernel(orKernelFunction_t kernel, void* arguments, const char* name, ErrorSink* sink);
  [[gnu::cold, gnu::noinline]] void KeepReturned(orError_t error);
  Outcome Drain(Role role);
  bool WantsTeam(const Command& command) const;
  bool Execute(Command& command, bool with_team);  // returns whether the command is done
  [[gnu::cold, gnu::noinline]] bool ExecuteRecorded(Command& command, bool with_team);

  // Guards the thread management of Streams: `thread_` and `joinable_` of all streams.
  static std::mutex& ThreadsMutex();

  void Work();
  // Spins for a while. Returns true as soon as the consumer has work or `other` returns true.
  template <class Other>
  bool WatchTailOr(Other other) const;
  bool MustWake() const;  // whether a consumer that has announced its sleep must not sleep
  void WorkerSleep();
  void Park();  // the worker waits until Unpark
  void WakeWaiters();

  Outcome DrainOnExecutor() override { return Drain(Role::kExecutor); }
  bool NextWantsTeam() const override;
  bool Closing() const override { return closing_.load(std::memory_order_seq_cst); }
  bool SpinForCommand() const override;
  bool BeginSleep() override;
  void EndSleep() override;
  void Unpark() override;         // returns the watcher role to the worker and wakes the worker
  void OfferToWorker() override;  // like Unpark, but the worker wakes when there is work

  // Members that producers read. They change only when the slot gets a new user.
  std::atomic<int> device_{0};
  std::atomic<int> priority_{0};
  std::atomic<uint64_t> first_position_{0};
  std::atomic<Capture*> capture_{nullptr};
  std::unique_ptr<Command[]> ring_;

  // Members that producers use. `seen_done_` is a copy of `done_`, because the consumer constantly
  // writes the cache line of `done_`.
  alignas(64) SpinLock producer_;
  bool started_ = false;
  uint64_t seen_done_ = 0;
  pthread_t thread_{};
  bool joinable_ = false;
  std::unique_ptr<orActivity[]> activities_;  // one per ring entry; null before the first record

  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> work_{0};
  alignas(64) std::atomic<uint64_t> done_{0};
  alignas(64) std::atomic<uint32_t> watch_{kWatched};
  std::atomic<bool> closing_{false};
  alignas(64) std::atomic<uint32_t> token_{kFree};

  // Members for threads that wait for a position. `wake_at_` is the smallest position that a thread
  // waits for.
  alignas(64) std::atomic<uint64_t> wake_at_{UINT64_MAX};
  std::atomic<uint32_t> signal_{0};

  alignas(64) std::atomic<uint32_t> parked_{0};  // the worker's own futex
  void (*on_end_)(Stream*) = nullptr;  // the worker of a destroyed stream calls it at the end
  ErrorSink sink_;
};

// The permission to queue commands on a stream (see the top of the file). It is valid for one call.
class StreamQueue {
 public:
  StreamQueue() = default;

  Stream* stream() const { return stream_; }

  // Runs the kernel on this thread if the stream is idle and no other thread is running a command
  // of it. The stream's device is the current device during the run, and the kernel receives a copy
  // of `arguments`. If TryInline returns false, the caller must queue the kernel.
  bool TryInline(orKernelFunction_t kernel, const void* arguments, size_t size, const char* name,
                 ErrorSink* sink) const {
    return stream_->TryInline(expected_, kernel, arguments, size, name, sink);
  }

  // Queues a command. `fill` writes the command in place and must not call the stream. Waits only
  // while the ring is full. Fails if the stream was destroyed. `position` (may be null) receives
  // the position of the command.
  template <class Fill>
  [[gnu::always_inline]] orError_t Enqueue(uint64_t* position, Fill&& fill) const {
    return stream_->Enqueue(expected_, position, std::forward<Fill>(fill));
  }

  // Queues one of the device's own kernels, with a copy of the bytes in `arguments`.
  template <class Arguments>
  orError_t EnqueueOwnKernel(Command::Place place, const char* name, orKernelFunction_t kernel,
                             const Arguments& arguments) const {
    return Enqueue(nullptr, [&](Command& command) {
      command.kind = Command::kCopy;
      command.place = place;
      command.name = name;
      command.kernel = kernel;
      command.sink = &stream_->sink();
      std::memcpy(command.arguments, &arguments, sizeof(arguments));
    });
  }

  // Queues a wait for the time when another stream has reached a position.
  orError_t EnqueueWait(Stream* source, uint64_t position) const;

 private:
  friend class Submission;
  StreamQueue(Stream* stream, uint64_t expected) : stream_(stream), expected_(expected) {}

  Stream* stream_ = nullptr;
  uint64_t expected_ = 0;
};

// If the sink contains an error, fails with this error and clears the sink. Otherwise returns
// orSuccess.
orError_t ReportKernelError(ErrorSink& sink);

template <class Fill>
[[gnu::always_inline]] inline orError_t Stream::Enqueue(uint64_t expected, uint64_t* position,
                                                        Fill&& fill) {
  Command* command = nullptr;
  if (const orError_t error = BeginEnqueue(expected, &command); error != orSuccess) [[unlikely]] {
    return error;
  }
  command->recorded = false;
  fill(*command);
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (position != nullptr) {
    *position = tail + 1;
  }
  tail_.store(tail + 1, std::memory_order_seq_cst);
  producer_.unlock();
  if (watch_.load(std::memory_order_seq_cst) != kWatched) [[unlikely]] {
    WakeConsumer();
  }
  return orSuccess;
}

inline bool Stream::TryInline(uint64_t expected, orKernelFunction_t kernel, const void* arguments,
                              size_t size, const char* name, ErrorSink* sink) {
  // The loads below see all commands that were queued before this call by this thread, or by a
  // thread with which it has synchronized. Commands that other threads queue concurrently may run
  // before or after this kernel. `done` is loaded first, because it is never ahead of `tail`.
  if (done_.load(std::memory_order_acquire) != tail_.load(std::memory_order_relaxed)) {
    return false;
  }
  uint32_t token = kFree;
  if (!token_.compare_exchange_strong(token, kInline, std::memory_order_seq_cst,
                                      std::memory_order_relaxed)) [[unlikely]] {
    if (!AcquireSoon(token)) {
      return false;
    }
  }
  // Destroy changes the handle and then reads the token. Either Destroy sees that the token is
  // taken, or this thread sees that the stream was destroyed.
  if (handle.load(std::memory_order_seq_cst) != expected) [[unlikely]] {
    token_.store(kFree, std::memory_order_release);
    return false;
  }
  alignas(16) unsigned char copy[OPENREG_MAX_ARGUMENT_BYTES];
  if (size != 0) {
    std::memcpy(copy, arguments, size);
  }
  ThreadState& thread = thread_state;
  const int current_device = thread.device;
  thread.device = device();
  RunKernel(kernel, copy, name, sink);
  thread.device = current_device;
  token_.store(kFree, std::memory_order_release);
  return true;
}

inline void Stream::RunKernel(orKernelFunction_t kernel, void* arguments, const char* name,
                              ErrorSink* sink) {
  ThreadState& thread = thread_state;
  thread.running = this;
  thread.sink = sink;
  thread.kernel_name = name;
  thread.kernel_failed = false;
  const orError_t error = kernel(arguments);
  thread.running = nullptr;
  if (error != orSuccess) [[unlikely]] {
    KeepReturned(error);
  }
}

inline orError_t ReportKernelError(ErrorSink& sink) {
  if (sink.empty()) [[likely]] {
    return orSuccess;
  }
  std::unique_ptr<KernelError> error = sink.Take();
  return error ? Fail(error.release()) : orSuccess;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_STREAM_H_
