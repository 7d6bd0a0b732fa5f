// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/stream.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <string>

#include "runtime/device/futex.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/injected_fault.h"

namespace openreg::device {
namespace {

std::atomic<uint64_t> error_sequence{0};

// Minimum amount of queued work, in nanoseconds on one thread, for which it is worthwhile to wake a
// team. The team's threads spin for some milliseconds after the last kernel.
constexpr uint64_t kTeamWork = 250'000;

}  // namespace

// --------------------------------------------------------------------------------------- producers

orError_t Stream::BeginEnqueue(uint64_t expected, Command** command) {
  producer_.lock();
  if (handle.load(std::memory_order_relaxed) != expected) [[unlikely]] {
    producer_.unlock();
    return Fail(orErrorInvalidHandle, "stream %p was destroyed while a command was queued on it",
                reinterpret_cast<void*>(expected));
  }
  if (tail_.load(std::memory_order_relaxed) - seen_done_ >= kRing) [[unlikely]] {
    if (const orError_t error = WaitForRoom(expected); error != orSuccess) {
      return error;
    }
  }
  if (!started_) [[unlikely]] {
    if (!StartWorker()) {
      const int error = errno;
      producer_.unlock();
      if (Stopping()) {
        return Fail(
            orErrorShutdown,
            "cannot queue a command on stream %u of device %d because the process is exiting",
            index, device());
      }
      return Fail(orErrorSystem,
                  "cannot start the thread of stream %u of device %d: %s (ulimit -u)", index,
                  device(), std::strerror(error));
    }
  }
  *command = &ring_[tail_.load(std::memory_order_relaxed) % kRing];
  return orSuccess;
}

// Waits until the ring has room. The caller must hold the producer lock. On success, the lock is
// still held.
orError_t Stream::WaitForRoom(uint64_t expected) {
  for (;;) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    seen_done_ = done_.load(std::memory_order_acquire);
    if (tail - seen_done_ < kRing) {
      return orSuccess;
    }
    producer_.unlock();
    // Wait until half of the ring is free. A producer that is always ahead of the consumer then
    // sleeps only once for many commands.
    if (!WaitFor(tail - kRing / 2)) {
      return Fail(orErrorShutdown,
                  "cannot queue a command on stream %u of device %d because the process is exiting",
                  index, device());
    }
    producer_.lock();
    if (handle.load(std::memory_order_relaxed) != expected) {
      producer_.unlock();
      return Fail(orErrorInvalidHandle, "stream %p was destroyed while a command was queued on it",
                  reinterpret_cast<void*>(expected));
    }
  }
}

std::mutex& Stream::ThreadsMutex() {
  // Never destroyed, because threads and late calls use it.
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

bool Stream::StartWorker() {
  // Hold the lock, so that the shutdown sees the new thread, or this function sees the shutdown.
  std::lock_guard lock(ThreadsMutex());
  if (Stopping()) {
    return false;
  }
  char name[16];
  std::snprintf(name, sizeof(name), "openreg-d%ds%u", device(), index);
  if (!StartThread(
          &thread_, name, [](void* stream) { static_cast<Stream*>(stream)->Work(); }, this)) {
    return false;
  }
  joinable_ = true;
  started_ = true;
  return true;
}

void Stream::WakeConsumer() {
  switch (watch_.exchange(kWatched, std::memory_order_seq_cst)) {
    case kWorkerSleeps:
      Unpark();
      break;
    case kExecutorSleeps:
      Executor::Get().Notify();
      break;
    default:  // another producer has already woken the consumer
      break;
  }
}

// ----------------------------------------------------------------------------------------- waiting

bool Stream::Idle() const {
  return done_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire) &&
         token_.load(std::memory_order_acquire) != kInline;
}

bool Stream::WaitFor(uint64_t position) {
  auto reached = [&] { return done_.load(std::memory_order_acquire) >= position; };
  if (SpinUntil(reached)) {
    return true;
  }
  const HostWait wait;
  for (;;) {
    // Read the signal before the registration. A consumer that removes the registration changes the
    // signal afterwards, so the sleep ends immediately.
    const uint32_t signal = signal_.load(std::memory_order_seq_cst);
    uint64_t at = wake_at_.load(std::memory_order_seq_cst);
    while (position < at &&
           !wake_at_.compare_exchange_weak(at, position, std::memory_order_seq_cst)) {
    }
    if (done_.load(std::memory_order_seq_cst) >= position) {
      return true;  // the remaining registration costs at most one unnecessary wake-up
    }
    if (Stopping()) {
      return false;
    }
    FutexWait(signal_, signal);
  }
}

bool Stream::WaitIdle() {
  if (!WaitFor(tail())) {
    return false;
  }
  if (token_.load(std::memory_order_acquire) != kInline) {
    return true;
  }
  const HostWait wait;
  for (Backoff backoff; token_.load(std::memory_order_acquire) == kInline; backoff.Pause()) {
    if (Stopping()) {
      return false;
    }
  }
  return true;
}

void Stream::WakeWaiters() {
  wake_at_.store(UINT64_MAX,
                 std::memory_order_seq_cst);  // a thread that must still wait registers again
  signal_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(signal_);
}

// --------------------------------------------------------------------------------------- consumers

bool Stream::AcquireToken() {
  for (Backoff backoff;; backoff.Pause()) {
    uint32_t token = kFree;
    if (token_.compare_exchange_weak(token, kConsumer, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
    if (Stopping()) {
      return false;  // a kernel that called exit() may hold the token
    }
  }
}

bool Stream::AcquireSoon(uint32_t token) {
  // If the worker has run its last command and is about to release the token, wait briefly.
  // Otherwise, a host that synchronizes and then launches would never launch inline.
  for (int round = 0; round < 64 && token != kInline; ++round) {
    SpinPause();
    token = kFree;
    if (token_.compare_exchange_strong(token, kInline, std::memory_order_seq_cst,
                                       std::memory_order_relaxed)) {
      if (done_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed)) {
        return true;
      }
      token_.store(kFree, std::memory_order_release);
      return false;
    }
    if (done_.load(std::memory_order_relaxed) != tail_.load(std::memory_order_relaxed)) {
      return false;
    }
  }
  return false;
}

ExecutorQueue::Outcome Stream::Drain(Role role) {
  if (!AcquireToken()) {
    return Outcome::kStopped;
  }
  uint64_t done = done_.load(std::memory_order_relaxed);
  Outcome outcome;
  for (;;) {
    if (Stopping()) {
      outcome = Outcome::kStopped;
      break;
    }
    if (done == tail_.load(std::memory_order_acquire)) {
      outcome = Outcome::kEmpty;
      break;
    }
    Command& command = ring_[done % kRing];
    const bool with_team = WantsTeam(command);
    if (role == Role::kWorker ? with_team : command.place == Command::kOnWorker) {
      outcome = Outcome::kHandOver;
      break;
    }
    if (Execute(command, with_team)) [[likely]] {
      ++done;
      done_.store(done, std::memory_order_seq_cst);
      if (done >= wake_at_.load(std::memory_order_seq_cst)) [[unlikely]] {
        WakeWaiters();
      }
    }
    if (role == Role::kExecutor && Executor::Get().wanted()) {
      outcome = Outcome::kYield;
      break;
    }
  }
  token_.store(kFree, std::memory_order_release);
  return outcome;
}

bool Stream::WantsTeam(const Command& command) const {
  if (command.place != Command::kMoldable) {
    return command.place == Command::kOnExecutor;
  }
  // While the host is busy, one core fewer is available, and a device that keeps up with the host
  // on one thread needs no team. A host that sleeps is waiting for the device.
  return wake_at_.load(std::memory_order_relaxed) != UINT64_MAX &&
         work_.load(std::memory_order_relaxed) - command.work_before >= kTeamWork;
}

bool Stream::NextWantsTeam() const {
  const uint64_t done = done_.load(std::memory_order_relaxed);
  return done != tail_.load(std::memory_order_acquire) && WantsTeam(ring_[done % kRing]);
}

orError_t StreamQueue::EnqueueWait(Stream* source, uint64_t position) const {
  return Enqueue(nullptr, [&](Command& command) {
    command.kind = Command::kWait;
    command.place = Command::kOnWorker;
    command.name = nullptr;
    command.source = source;
    command.position = position;
    command.sink = nullptr;
  });
}

void Stream::RunQueuedKernel(Command::Kind kind, orKernelFunction_t kernel, void* arguments,
                             const char* name, ErrorSink* sink, bool with_team) {
  if ((mode.load(std::memory_order_relaxed) & kInjecting) != 0) [[unlikely]] {
    DelayKernel();
    if (kind == Command::kKernel && KernelFaultDue()) {
      kernel = [](void*) {
        return orKernelFail(orErrorLaunchFailure, "failure injected by a test", nullptr, nullptr);
      };
    }
  }
  if (!with_team) {
    RunKernel(kernel, arguments, name, sink);
    return;
  }
  Executor& executor = Executor::Get();
  executor.set_parallel_running(true);
  thread_state.has_team = true;
  RunKernel(kernel, arguments, name, sink);
  thread_state.has_team = false;
  executor.set_parallel_running(false);
}

void Stream::RunHostFunction(orHostFn_t function, void* data, const char* name, ErrorSink* sink) {
  ThreadState& thread = thread_state;
  thread.running = this;
  thread.sink = sink;
  thread.kernel_name = name;
  thread.kernel_failed = false;
  function(data);
  thread.running = nullptr;
}

void Stream::Record(Command* command, const orActivity& activity) {
  if (activities_ == nullptr) {
    activities_.reset(new (std::nothrow) orActivity[kRing]);
    if (activities_ == nullptr) {
      DropActivity();
      return;
    }
  }
  BeginPendingRecords();
  activities_[static_cast<size_t>(command - ring_.get())] = activity;
  command->recorded = true;
}

bool Stream::ExecuteRecorded(Command& command, bool with_team) {
  orActivity record = activity(command);
  command.recorded = false;
  record.start_ns = ActivityTime();
  const bool done = Execute(command, with_team);
  record.end_ns = ActivityTime();
  WriteActivity(record);
  EndPendingRecords();
  return done;
}

bool Stream::Execute(Command& command, bool with_team) {
  if (command.recorded && command.kind != Command::kStep) [[unlikely]] {
    return ExecuteRecorded(command, with_team);
  }
  thread_state.device = device();
  switch (command.kind) {
    case Command::kKernel:
    case Command::kCopy:
      RunQueuedKernel(command.kind, command.kernel, command.arguments, command.name, command.sink,
                      with_team);
      break;
    case Command::kHostFunction:
      RunHostFunction(command.function, command.data, "(host function)", command.sink);
      break;
    case Command::kWait:
      command.source->WaitFor(command.position);
      break;
    case Command::kStep:
      return command.step(this, &command, with_team);
  }
  return true;
}

void Stream::KeepReturned(orError_t error) {
  const ThreadState& thread = thread_state;
  if (thread.kernel_failed) {
    return;  // orKernelFail has already stored a more detailed error
  }
  auto kept = std::make_unique<KernelError>();
  kept->code = error;
  kept->message = std::string("it returned ") + orGetErrorName(error) + " (" +
                  orGetErrorString(error) + ") without a message";
  kept->name = thread.kernel_name;
  kept->device = device();
  kept->stream = index;
  kept->after = done() - first_position();
  kept->sequence = error_sequence.fetch_add(1, std::memory_order_relaxed);
  thread.sink->Keep(std::move(kept));
}

void Stream::KeepFailure(orError_t error, const char* message, void* payload, void (*drop)(void*)) {
  ThreadState& thread = thread_state;
  thread.kernel_failed = true;
  auto kept = std::make_unique<KernelError>();
  kept->code = error;
  kept->message = message == nullptr ? orGetErrorString(error) : message;
  kept->name = thread.kernel_name;
  kept->payload = payload;
  kept->drop = drop;
  kept->device = device();
  kept->stream = index;
  kept->after = done() - first_position();
  kept->sequence = error_sequence.fetch_add(1, std::memory_order_relaxed);
  thread.sink->Keep(std::move(kept));
}

// -------------------------------------------------------------------------------------- the worker

void Stream::Work() {
  for (;;) {
    switch (Drain(Role::kWorker)) {
      case Outcome::kEmpty:
        if (closing_.load(std::memory_order_seq_cst) && tail() == done()) {
          // No more kernels can start inline, but one may still be running: wait for it.
          if (AcquireToken()) {
            token_.store(kFree, std::memory_order_release);
            on_end_(this);
          }
          return;
        }
        if (!WatchTailOr([] { return false; })) {
          WorkerSleep();
        }
        break;
      case Outcome::kHandOver:
        parked_.store(1, std::memory_order_seq_cst);
        Executor::Get().Submit(this);
        Park();
        break;
      case Outcome::kYield:
        break;
      case Outcome::kStopped:
        return;
    }
  }
}

template <class Other>
bool Stream::WatchTailOr(Other other) const {
  return SpinUntil([&] {
    return tail_.load(std::memory_order_relaxed) != done_.load(std::memory_order_relaxed) ||
           closing_.load(std::memory_order_relaxed) || Stopping() || other();
  });
}

bool Stream::SpinForCommand() const {
  const Executor& executor = Executor::Get();
  return WatchTailOr([&] { return executor.wanted(); });
}

bool Stream::BeginSleep() {
  watch_.store(kExecutorSleeps, std::memory_order_seq_cst);
  return !MustWake();
}

void Stream::EndSleep() {
  uint32_t sleeps = kExecutorSleeps;
  watch_.compare_exchange_strong(sleeps, kWatched, std::memory_order_seq_cst);
}

bool Stream::MustWake() const {
  return tail_.load(std::memory_order_seq_cst) != done_.load(std::memory_order_relaxed) ||
         closing_.load(std::memory_order_seq_cst) || Stopping();
}

void Stream::WorkerSleep() {
  parked_.store(1, std::memory_order_seq_cst);
  OfferToWorker();
  Park();
}

void Stream::OfferToWorker() {
  watch_.store(kWorkerSleeps, std::memory_order_seq_cst);
  if (MustWake()) {
    uint32_t sleeps = kWorkerSleeps;
    if (watch_.compare_exchange_strong(sleeps, kWatched, std::memory_order_seq_cst)) {
      Unpark();
    }  // otherwise, a producer has seen the store above and unparks the worker
  }
}

void Stream::Park() {
  while (parked_.load(std::memory_order_seq_cst) == 1 && !Stopping()) {
    FutexWait(parked_, 1);
  }
}

void Stream::Unpark() {
  parked_.store(0, std::memory_order_seq_cst);
  FutexWake(parked_);
}

}  // namespace openreg::device
