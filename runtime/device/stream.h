// SPDX-License-Identifier: BSD-3-Clause
//
// stream.h - a queue of commands and the threads that run them.
//
// A stream is a ring of fixed-size commands. Positions count commands for ever: command number p is
// done when done() > p, and `tail` is the number of commands queued so far. Neither is reset when
// the stream's slot is used again, so a (stream, position) pair from any time stays meaningful:
// that is all an event has to keep.
//
// Who runs commands. The stream's worker thread, which starts with the first command; for parallel
// kernels the executor, to which the worker hands the duty of watching the queue and which hands it
// back (executor.h); and, for a cheap kernel on an idle stream, the launching thread itself.
// Whoever runs commands holds the stream's token, so there is one consumer at a time. The duty says
// who must come when a command is queued; the token says who may run one now:
//
//   producer        lock, write command, tail+1, unlock; wake the one who has the duty if it sleeps
//   worker/executor take the token, run commands until the ring is empty, give the token back;
//                   watch the tail for some microseconds, then sleep
//   inline          idle? take the token if it is free, run the kernel, give the token back
//
// No wake-up is lost between producer and consumer: the producer stores `tail` and then loads
// `watch`, the consumer stores `watch` and then loads `tail`, all sequentially consistent, so at
// least one of both sees the other. An inline launch needs no such care: whoever queues a command
// meanwhile has woken the worker, and the worker waits for the token without sleeping for long. The
// same pattern, with `done` and `wake_at`, is between the consumer and those who wait for a
// position.
//
// Streams are created in a table and never freed; Destroy lets one drain, end its thread and become
// free.
#ifndef RUNTIME_DEVICE_STREAM_H_
#define RUNTIME_DEVICE_STREAM_H_

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/error.h"
#include "runtime/device/executor.h"
#include "runtime/device/futex.h"
#include "runtime/device/handle.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process.h"
#include "runtime/device/thread.h"

namespace openreg::device {

class Capture;
class Event;
class Graph;
class Stream;

struct Command {
  enum Kind : uint8_t {
    kKernel,
    kCopy,  // a kernel of the device itself
    kHostFunction,
    kWait,       // for `source` to reach `position`
    kTimestamp,  // of event `event`, record number `position`
    kReplay      // of `graph`, which has come to node `position`
  };
  // Which of the stream's consumers may run it.
  enum Place : uint8_t {
    kOnWorker,  // it may wait or take long
    kAnywhere,
    kMoldable,   // on the executor with its team, if that pays; else anywhere
    kOnExecutor  // it needs the team
  };
  Kind kind;
  Place place;
  const char* name;
  union {
    orKernelFunction_t kernel;
    orHostFn_t function;
  };
  union {
    void* data;
    Stream* source;
    Event* event;
    Graph* graph;
  };
  uint64_t position;
  uint64_t work_before;  // with a team: what AddWork had counted before
  ErrorSink* sink;       // where an error goes
  alignas(64) unsigned char arguments[OPENREG_MAX_ARGUMENT_BYTES];
};
static_assert(sizeof(Command) == 512);

class alignas(64) Stream : public HandleSlot {
 public:
  static constexpr uint64_t kRing = 256;  // commands that can be queued
  static constexpr int kGreatestPriority = -3;
  static constexpr int kLeastPriority = 0;

  int device() const { return device_.load(std::memory_order_relaxed); }
  int priority() const { return priority_.load(std::memory_order_relaxed); }
  ErrorSink& sink() { return sink_; }

  // Number of commands queued and done so far.
  uint64_t tail() const { return tail_.load(std::memory_order_acquire); }
  uint64_t done() const { return done_.load(std::memory_order_acquire); }

  // The capture that this stream is part of, or null. Set by Captures, under its lock.
  Capture* capture() const { return capture_.load(std::memory_order_acquire); }
  void set_capture(Capture* capture) { capture_.store(capture, std::memory_order_release); }

  // Nothing is queued and nothing runs.
  bool Idle() const;

  // First position of the current user of this slot.
  uint64_t first_position() const { return first_position_.load(std::memory_order_acquire); }

  // Runs the kernel on this thread, with the stream's device as the current one, if the stream is
  // idle and nobody else is running anything on it. False: it has to be queued. `expected` as with
  // Enqueue; `arguments` are copied.
  bool TryInline(uint64_t expected, orKernelFunction_t kernel, const void* arguments, size_t size,
                 const char* name, ErrorSink* sink);

  // Only within `fill` of Enqueue: counts work for a team, in nanoseconds of one thread. Returns
  // how much was counted before, for ever.
  uint64_t AddWork(uint64_t nanoseconds) {
    const uint64_t before = work_.load(std::memory_order_relaxed);
    work_.store(before + nanoseconds, std::memory_order_relaxed);
    return before;
  }

  // Queues a command. `fill` writes it in place; it may not call back into the stream. Waits only
  // while the ring is full. `expected` is the handle which the caller looked up: a stream destroyed
  // meanwhile fails. `position` (may be null): where the command stands.
  template <class Fill>
  orError_t Enqueue(uint64_t expected, uint64_t* position, Fill&& fill) {
    Command* command = nullptr;
    if (const orError_t error = BeginEnqueue(expected, &command); error != orSuccess) [[unlikely]] {
      return error;
    }
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

  // Queues a wait for another stream to come to a position.
  orError_t EnqueueWait(uint64_t expected, Stream* source, uint64_t position);

  // On the thread that runs commands of this stream: a kernel that was queued, with injected
  // faults, a function of the host, and what a graph has left when its last replay is over.
  void RunQueuedKernel(Command::Kind kind, orKernelFunction_t kernel, void* arguments,
                       const char* name, ErrorSink* sink, bool with_team);
  void RunHostFunction(orHostFn_t function, void* data, ErrorSink* sink);
  void ReleaseGraph(Graph* graph, ErrorSink* sink);

  // For orKernelFail, on the thread which runs a kernel of this stream.
  void KeepFailure(orError_t error, const char* message, void* payload, void (*drop)(void*));

  // Waits until done() >= position. False when the process exits and it will never be.
  bool WaitFor(uint64_t position);

  // Waits until all that is queued now is done, a kernel which runs inline on another thread
  // included.
  bool WaitIdle();

 private:
  friend class Executor;
  friend class Streams;

  // Who watches the tail.
  enum Watch : uint32_t { kWatched = 0, kWorkerSleeps = 1, kExecutorSleeps = 2 };
  enum Token : uint32_t { kFree = 0, kConsumer = 1, kInline = 2 };
  enum class Role { kWorker, kExecutor };
  // Why Drain returned.
  enum class Outcome {
    kEmpty,
    kHandOver,  // the next command is for the other role
    kYield,     // another stream waits for the executor
    kStopped    // the process exits
  };

  orError_t BeginEnqueue(uint64_t expected, Command** command);
  [[gnu::cold, gnu::noinline]] orError_t WaitForRoom(uint64_t expected);
  [[gnu::cold, gnu::noinline]] void WakeConsumer();
  [[gnu::cold, gnu::noinline]] bool StartWorker();

  bool AcquireToken();
  bool AcquireSoon(uint32_t token);  // for an inline launch that found the token taken
  void RunKernel(orKernelFunction_t kernel, void* arguments, const char* name, ErrorSink* sink);
  [[gnu::cold, gnu::noinline]] void KeepReturned(orError_t error);
  Outcome Drain(Role role);
  bool WantsTeam(const Command& command) const;
  bool NextWantsTeam() const;
  bool Execute(Command& command, bool with_team);  // true: the command is done

  void Work();
  bool WatchTail() const {
    return WatchTailOr([] { return false; });
  }
  // Spins; true when the consumer has something to do, or `other` says so.
  template <class Other>
  bool WatchTailOr(Other other) const;
  bool MustWake() const;  // a consumer that has announced its sleep may not sleep
  void WorkerSleep();
  void OfferToWorker();  // gives the duty to the parked worker, which wakes when there is work
  void Park();           // the worker waits until Unpark
  void Unpark();         // gives the duty to the worker and wakes it
  void End();
  void WakeWaiters();

  // Read by producers, changed only when the slot gets a new user.
  std::atomic<int> device_{0};
  std::atomic<int> priority_{0};
  std::atomic<uint64_t> first_position_{0};
  std::atomic<Capture*> capture_{nullptr};
  std::unique_ptr<Command[]> ring_;

  // Producers. `seen_done_` spares them a look at a line that the consumer writes all the time.
  alignas(64) SpinLock producer_;
  bool started_ = false;
  uint64_t seen_done_ = 0;
  pthread_t thread_{};
  bool joinable_ = false;  // both: under the lock of Streams

  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> work_{0};
  alignas(64) std::atomic<uint64_t> done_{0};
  alignas(64) std::atomic<uint32_t> watch_{kWatched};
  std::atomic<bool> closing_{false};
  alignas(64) std::atomic<uint32_t> token_{kFree};

  // Those who wait for a position: `wake_at_` is the smallest one.
  alignas(64) std::atomic<uint64_t> wake_at_{UINT64_MAX};
  std::atomic<uint32_t> signal_{0};

  alignas(64) std::atomic<uint32_t> parked_{0};  // the worker's own futex
  ErrorSink sink_;
};

// All streams of the process.
class Streams {
 public:
  static constexpr unsigned kIndexBits = 12;

  static Streams& Get();

  // Creates the default stream of each device. Called once.
  orError_t SetUp(int device_count);

  // A null handle is the default stream of the thread's device. Null when it is no live stream.
  Stream* Find(orStream_t handle) const {
    if (handle == nullptr) {
      return default_[thread_state.device];
    }
    return table_.Find(reinterpret_cast<uint64_t>(handle));
  }
  Stream* At(uint32_t index) const { return table_.At(index); }
  uint32_t size() const { return table_.size(); }
  Stream* Default(int device) const { return default_[device]; }

  orError_t Create(int device, int priority, orStream_t* handle);
  orError_t Destroy(Stream* stream, uint64_t handle);
  void DestroyAll(int device);

  // Waits for all streams of a device, those that were destroyed and still drain included.
  bool WaitIdle(int device);

  // Takes the earliest error among the streams of a device, or null.
  std::unique_ptr<KernelError> TakeError(int device);

  // Ends all threads; see orShutdown.
  void ShutDown();

 private:
  friend class Stream;
  void Reap();

  // Moves the error of a stream that goes away to its device.
  void KeepOrphaned(Stream* stream);

  HandleTable<Stream, kIndexBits, 1> table_;
  Stream* default_[OPENREG_MAX_DEVICES] = {};
  std::mutex errors_mutex_;                  // so that an error on its way there is not overlooked
  ErrorSink orphaned_[OPENREG_MAX_DEVICES];  // errors of destroyed streams

  std::mutex mutex_;  // of threads: who starts, has ended, is to be joined
  // Whose threads have ended and are to be joined; or that had none, and whose last kernel ran
  // inline when they were destroyed.
  std::vector<Stream*> ended_;
  std::atomic<uint32_t> ended_count_{0};
};

// What becomes of a call while its stream is captured. Every function that takes a stream has to
// say it when it looks the stream up, so that none passes a capture by.
struct WhenCaptured {
  // Not null: it is refused, and makes the capture invalid; ends the sentence "orX: stream S is
  // captured, ".
  const char* refused_because;
};
// It takes part in the capture, by a function of Captures, or is about the stream itself and not
// about its work.
inline constexpr WhenCaptured kAllowedInCapture{nullptr};
inline constexpr WhenCaptured kNothingRuns{
    "so nothing runs that could be waited for: do it before or after the capture"};

// The stream a handle names; fails otherwise, and if `when_captured` refuses.
orError_t FindStream(const char* function, orStream_t handle, WhenCaptured when_captured,
                     Stream** stream, uint64_t* expected);

// Begins a function of the device that works on a stream.
inline orError_t EnterStream(const char* function, orStream_t handle, WhenCaptured when_captured,
                             Stream** stream, uint64_t* expected) {
  const orError_t error = EnterDevice(function);
  return error == orSuccess ? FindStream(function, handle, when_captured, stream, expected) : error;
}

// Fails with the error that a sink keeps, and clears it; or returns orSuccess.
orError_t ReportKernelError(ErrorSink& sink);

// How long consumers and waiting hosts spin. Long enough to bridge the host's time between two
// launches, short enough not to be noticed as load.
inline constexpr std::chrono::microseconds kSpin{20};

// Spins until `ready` is true, for kSpin at most, and not at all where it would take a core away
// from a parallel kernel or from the thread that is waited for.
template <class Ready>
bool SpinUntil(Ready ready) {
  if (ready()) {
    return true;
  }
  if (!MaySpin()) {
    return false;
  }
  const Executor& executor = Executor::Get();
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    if (executor.parallel_running()) {
      return false;
    }
    for (int round = 0; round < 16; ++round) {
      if (ready()) {
        return true;
      }
      SpinPause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

template <class Other>
bool Stream::WatchTailOr(Other other) const {
  return SpinUntil([&] {
    return tail_.load(std::memory_order_relaxed) != done_.load(std::memory_order_relaxed) ||
           closing_.load(std::memory_order_relaxed) || Stopping() || other();
  });
}

// Runs a kernel of the device itself in the order of the stream and waits until it is done: on this
// thread if the stream is idle.
orError_t RunInOrder(Stream* stream, uint64_t expected, orKernelFunction_t kernel,
                     const void* arguments, size_t size, const char* name);

inline bool Stream::TryInline(uint64_t expected, orKernelFunction_t kernel, const void* arguments,
                              size_t size, const char* name, ErrorSink* sink) {
  // Whatever was queued before this call, by this thread or by one it has synchronized with, is
  // visible here; what others queue at this moment may go first or second. `done` is read first: it
  // never runs ahead of `tail`.
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
  // Destroy changes the handle and then looks at the token: it sees that the token is taken, or
  // this sees that the stream is gone.
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
