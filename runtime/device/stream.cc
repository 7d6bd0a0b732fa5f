// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/stream.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <string>
#include <utility>

#include "runtime/device/device.h"
#include "runtime/device/event.h"
#include "runtime/device/executor.h"
#include "runtime/device/graph.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/injected_fault.h"

namespace openreg::device {
namespace {

std::atomic<uint64_t> error_sequence{0};
std::atomic<const orHostWaitHooks*> host_wait_hooks{nullptr};

// So much queued work, in nanoseconds of one thread, is worth waking a team for; its threads then
// spin for some milliseconds after the last kernel.
constexpr uint64_t kTeamWork = 250'000;

}  // namespace

// ----------------------------------------------------------------------------------------
// producers

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
        return Fail(orErrorShutdown, "launch refused: the process exits");
      }
      return Fail(orErrorSystem,
                  "the thread of stream %u of device %d does not start: %s (ulimit -u)", index,
                  device(), std::strerror(error));
    }
  }
  *command = &ring_[tail_.load(std::memory_order_relaxed) % kRing];
  return orSuccess;
}

// Called and, if it succeeds, returns with the producers' lock.
orError_t Stream::WaitForRoom(uint64_t expected) {
  for (;;) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    seen_done_ = done_.load(std::memory_order_acquire);
    if (tail - seen_done_ < kRing) {
      return orSuccess;
    }
    producer_.unlock();
    // Until half of the ring is free: a producer that is always ahead then sleeps once for many
    // commands.
    if (!WaitFor(tail - kRing / 2)) {
      return Fail(orErrorShutdown, "launch refused: the process exits");
    }
    producer_.lock();
    if (handle.load(std::memory_order_relaxed) != expected) {
      producer_.unlock();
      return Fail(orErrorInvalidHandle, "stream %p was destroyed while a command was queued on it",
                  reinterpret_cast<void*>(expected));
    }
  }
}

bool Stream::StartWorker() {
  Streams& streams = Streams::Get();
  std::lock_guard lock(
      streams.mutex_);  // a shutdown sees the thread, or the thread sees the shutdown
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
    default:  // another producer was faster
      break;
  }
}

// ------------------------------------------------------------------------------------------
// waiting

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
    // The signal is read before the registration: a consumer that takes the registration away
    // changes the signal afterwards, and then the sleep ends at once.
    const uint32_t signal = signal_.load(std::memory_order_seq_cst);
    uint64_t at = wake_at_.load(std::memory_order_seq_cst);
    while (position < at &&
           !wake_at_.compare_exchange_weak(at, position, std::memory_order_seq_cst)) {
    }
    if (done_.load(std::memory_order_seq_cst) >= position) {
      return true;  // a registration that stays costs one needless wake-up
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
  wake_at_.store(UINT64_MAX, std::memory_order_seq_cst);  // who still waits registers again
  signal_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(signal_);
}

// ----------------------------------------------------------------------------------------
// consumers

bool Stream::AcquireToken() {
  for (Backoff backoff;; backoff.Pause()) {
    uint32_t token = kFree;
    if (token_.compare_exchange_weak(token, kConsumer, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
    if (Stopping()) {
      return false;  // it may be held by a kernel that called exit()
    }
  }
}

bool Stream::AcquireSoon(uint32_t token) {
  // The worker has run its last command and is about to give the token back: worth a short wait,
  // since otherwise a host that synchronizes and then launches would never launch inline.
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

Stream::Outcome Stream::Drain(Role role) {
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
  // While the host is busy, one core less is free; and a device that keeps up with one thread needs
  // no more. Once the host sleeps, it is the device that is waited for.
  return wake_at_.load(std::memory_order_relaxed) != UINT64_MAX &&
         work_.load(std::memory_order_relaxed) - command.work_before >= kTeamWork;
}

bool Stream::NextWantsTeam() const {
  const uint64_t done = done_.load(std::memory_order_relaxed);
  return done != tail_.load(std::memory_order_acquire) && WantsTeam(ring_[done % kRing]);
}

orError_t Stream::EnqueueWait(uint64_t expected, Stream* source, uint64_t position) {
  return Enqueue(expected, nullptr, [&](Command& command) {
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

void Stream::RunHostFunction(orHostFn_t function, void* data, ErrorSink* sink) {
  ThreadState& thread = thread_state;
  thread.running = this;
  thread.sink = sink;
  thread.kernel_name = "(host function)";
  thread.kernel_failed = false;
  function(data);
  thread.running = nullptr;
}

void Stream::ReleaseGraph(Graph* graph, ErrorSink* sink) {
  // A wait for this stream would never end.
  ThreadState& thread = thread_state;
  thread.running = this;
  thread.sink = sink;
  thread.kernel_name = "(release of a graph)";
  thread.kernel_failed = false;
  thread.releasing = true;
  graph->Release();
  thread.releasing = false;
  thread.running = nullptr;
}

bool Stream::Execute(Command& command, bool with_team) {
  thread_state.device = device();
  switch (command.kind) {
    case Command::kKernel:
    case Command::kCopy:
      RunQueuedKernel(command.kind, command.kernel, command.arguments, command.name, command.sink,
                      with_team);
      break;
    case Command::kHostFunction:
      RunHostFunction(command.function, command.data, command.sink);
      break;
    case Command::kWait:
      command.source->WaitFor(command.position);
      break;
    case Command::kTimestamp:
      command.event->Stamp(command.position);
      break;
    case Command::kReplay:
      if (!command.graph->RunSome(this, &command, with_team)) {
        return false;
      }
      ReleaseGraph(command.graph, command.sink);
      break;
  }
  return true;
}

void Stream::KeepReturned(orError_t error) {
  const ThreadState& thread = thread_state;
  if (thread.kernel_failed) {
    return;  // orKernelFail has kept more than a number
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

// --------------------------------------------------------------------------------------- the
// worker

void Stream::Work() {
  for (;;) {
    switch (Drain(Role::kWorker)) {
      case Outcome::kEmpty:
        if (closing_.load(std::memory_order_seq_cst) && tail() == done()) {
          // No kernel begins to run inline any more, but one may be at it.
          if (AcquireToken()) {
            token_.store(kFree, std::memory_order_release);
            End();
          }
          return;
        }
        if (!WatchTail()) {
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
    }  // else a producer has seen the store above, and unparks
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

void Stream::End() {
  Streams& streams = Streams::Get();
  streams.KeepOrphaned(this);
  std::lock_guard lock(streams.mutex_);
  streams.ended_.push_back(this);
  streams.ended_count_.fetch_add(1, std::memory_order_release);
}

// ------------------------------------------------------------------------------------- the
// registry

Streams& Streams::Get() {
  static Streams& streams = *new Streams;  // never destroyed: threads and late calls use it
  return streams;
}

orError_t Streams::SetUp(int device_count) {
  for (int device = 0; device < device_count; ++device) {
    if (default_[device] != nullptr) {
      continue;  // from an attempt that failed later
    }
    orStream_t handle;
    if (const orError_t error = Create(device, Stream::kLeastPriority, &handle);
        error != orSuccess) {
      return error;
    }
    default_[device] = table_.Find(reinterpret_cast<uint64_t>(handle));
  }
  return orSuccess;
}

orError_t Streams::Create(int device, int priority, orStream_t* handle) {
  Reap();
  Stream* stream = table_.Take();
  if (stream == nullptr) {
    return Fail(orErrorSystem, "a stream can not be created: %u exist already; destroy some",
                table_.kCapacity);
  }
  if (stream->ring_ == nullptr) {
    stream->ring_.reset(new (std::nothrow) Command[Stream::kRing]);
    if (stream->ring_ == nullptr) {
      table_.Recycle(stream);
      return Fail(orErrorSystem,
                  "a stream can not be created: no host memory is left for its queue");
    }
  }
  stream->device_.store(device, std::memory_order_relaxed);
  stream->priority_.store(priority, std::memory_order_relaxed);
  stream->started_ = false;
  stream->closing_.store(false, std::memory_order_relaxed);
  // One position belongs to nobody, so that those of the slot's users do not touch.
  const uint64_t first = stream->tail() + 1;
  stream->seen_done_ = first;
  stream->done_.store(first, std::memory_order_release);
  stream->tail_.store(first, std::memory_order_release);
  stream->first_position_.store(first, std::memory_order_release);
  *handle = reinterpret_cast<orStream_t>(table_.Publish(stream));
  return orSuccess;
}

orError_t Streams::Destroy(Stream* stream, uint64_t handle) {
  if (stream == default_[stream->device()]) {
    return Fail(
        orErrorInvalidValue,
        "orStreamDestroy: this is the default stream of device %d, which lives as long as the "
        "device",
        stream->device());
  }
  Reap();
  stream->producer_.lock();  // a launch that runs at the same time comes before or fails
  const bool retired = table_.Retire(stream, handle);
  const bool started = stream->started_;
  if (retired) {
    stream->closing_.store(true, std::memory_order_seq_cst);
  }
  stream->producer_.unlock();
  if (!retired) {
    return Fail(orErrorInvalidHandle, "orStreamDestroy: stream %p is destroyed already",
                reinterpret_cast<void*>(handle));
  }
  if (started) {
    stream->WakeConsumer();
    return orSuccess;
  }
  // A kernel that runs inline on another thread may leave an error yet: Reap looks again.
  if (stream->token_.load(std::memory_order_seq_cst) != Stream::kFree) {
    std::lock_guard lock(mutex_);
    ended_.push_back(stream);
    ended_count_.fetch_add(1, std::memory_order_release);
    return orSuccess;
  }
  KeepOrphaned(stream);
  table_.Recycle(stream);
  return orSuccess;
}

void Streams::DestroyAll(int device) {
  for (uint32_t index = 0; index < size(); ++index) {
    Stream* stream = At(index);
    const uint64_t handle = stream->handle.load(std::memory_order_acquire);
    if (handle != 0 && stream->device() == device && stream != default_[device]) {
      (void)Destroy(stream, handle);  // fails only if another thread has just destroyed it
    }
  }
}

void Streams::KeepOrphaned(Stream* stream) {
  std::lock_guard lock(errors_mutex_);
  if (std::unique_ptr<KernelError> error = stream->sink_.Take()) {
    orphaned_[stream->device()].Keep(std::move(error));
  }
}

void Streams::Reap() {
  if (ended_count_.load(std::memory_order_acquire) == 0) {
    return;
  }
  std::vector<Stream*> ended;
  {
    std::lock_guard lock(mutex_);
    if (Stopping()) {
      return;  // ShutDown joins them
    }
    std::erase_if(ended_, [&](Stream* stream) {
      if (stream->token_.load(std::memory_order_acquire) != Stream::kFree) {
        return false;
      }
      ended.push_back(stream);
      return true;
    });
    ended_count_.store(static_cast<uint32_t>(ended_.size()), std::memory_order_release);
    for (Stream* stream : ended) {
      stream->joinable_ = false;
    }
  }
  for (Stream* stream : ended) {
    if (stream->started_) {
      pthread_join(stream->thread_, nullptr);  // it has left its loop, so this does not wait
    } else {
      KeepOrphaned(stream);
    }
    table_.Recycle(stream);
  }
}

bool Streams::WaitIdle(int device) {
  bool reached = true;
  for (uint32_t index = 0; index < size(); ++index) {
    Stream* stream = At(index);
    if (stream->device() == device) {
      reached &= stream->WaitIdle();
    }
  }
  return reached;
}

std::unique_ptr<KernelError> Streams::TakeError(int device) {
  std::lock_guard lock(errors_mutex_);
  std::unique_ptr<KernelError> first;
  ErrorSink* origin = nullptr;
  auto look = [&](ErrorSink& sink) {
    std::unique_ptr<KernelError> error = sink.empty() ? nullptr : sink.Take();
    if (!error) {
      return;
    }
    if (!first || error->sequence < first->sequence) {
      if (first) {
        origin->Keep(std::move(first));
      }
      first = std::move(error);
      origin = &sink;
    } else {
      sink.Keep(std::move(error));
    }
  };
  look(orphaned_[device]);
  for (uint32_t index = 0; index < size(); ++index) {
    if (At(index)->device() == device) {
      look(At(index)->sink_);
    }
  }
  return first;
}

void Streams::ShutDown() {
  for (uint32_t index = 0; index < size(); ++index) {
    Stream* stream = At(index);
    stream->WakeWaiters();
    stream->Unpark();
  }
  Executor::Get().ShutDown();
  std::vector<pthread_t> threads;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t index = 0; index < size(); ++index) {
      if (std::exchange(At(index)->joinable_, false)) {
        threads.push_back(At(index)->thread_);
      }
    }
  }
  for (pthread_t thread : threads) {
    if (pthread_equal(thread, pthread_self())) {
      pthread_detach(thread);  // a kernel or callback called exit()
    } else {
      pthread_join(thread, nullptr);
    }
  }
}

orError_t FindStream(const char* function, orStream_t handle, WhenCaptured when_captured,
                     Stream** stream, uint64_t* expected) {
  *stream = Streams::Get().Find(handle);
  if (*stream == nullptr) [[unlikely]] {
    return Fail(orErrorInvalidHandle, "%s: %p is not a stream, or it was destroyed", function,
                static_cast<void*>(handle));
  }
  *expected = handle == nullptr ? (*stream)->handle.load(std::memory_order_relaxed)
                                : reinterpret_cast<uint64_t>(handle);
  if (when_captured.refused_because != nullptr && Capturing()) [[unlikely]] {
    return Captures::Get()
        .RefuseStream(function, *stream, when_captured.refused_because)
        .value_or(orSuccess);
  }
  return orSuccess;
}

orError_t RunInOrder(Stream* stream, uint64_t expected, orKernelFunction_t kernel,
                     const void* arguments, size_t size, const char* name) {
  if ((mode.load(std::memory_order_relaxed) & kInjecting) == 0 &&
      stream->TryInline(expected, kernel, arguments, size, name, &stream->sink())) {
    return orSuccess;
  }
  uint64_t position;
  const orError_t error = stream->Enqueue(expected, &position, [&](Command& command) {
    command.kind = Command::kCopy;
    command.place = Command::kOnWorker;
    command.name = name;
    command.kernel = kernel;
    command.sink = &stream->sink();
    std::memcpy(command.arguments, arguments, size);
  });
  if (error != orSuccess) {
    return error;
  }
  return stream->WaitFor(position)
             ? orSuccess
             : Fail(orErrorShutdown, "%s is not done: the process exits", name);
}

}  // namespace openreg::device

using openreg::device::Captures;
using openreg::device::Capturing;
using openreg::device::EnterDevice;
using openreg::device::EnterQuery;
using openreg::device::EnterRelease;
using openreg::device::EnterStream;
using openreg::device::Fail;
using openreg::device::FindStream;
using openreg::device::kAllowedInCapture;
using openreg::device::kNothingRuns;
using openreg::device::LeftBehind;
using openreg::device::ReportKernelError;
using openreg::device::Stopped;
using openreg::device::Stream;
using openreg::device::Streams;
using openreg::device::thread_state;

orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least == nullptr || greatest == nullptr) {
    return Fail(orErrorInvalidValue,
                "orDeviceGetStreamPriorityRange: least and greatest must not be null");
  }
  *least = Stream::kLeastPriority;
  *greatest = Stream::kGreatestPriority;
  return orSuccess;
}

orError_t orStreamCreate(orStream_t* stream) {
  return orStreamCreateWithPriority(stream, 0, Stream::kLeastPriority);
}

orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned flags, int priority) {
  if (const orError_t error = EnterDevice("orStreamCreate"); error != orSuccess) {
    return error;
  }
  if (stream == nullptr) {
    return Fail(orErrorInvalidValue, "orStreamCreate: stream is null: where should the handle go?");
  }
  if (flags != 0) {
    return Fail(orErrorInvalidValue, "orStreamCreate: flags are 0x%x: there are none, pass 0",
                flags);
  }
  if (priority < Stream::kGreatestPriority || priority > Stream::kLeastPriority) {
    return Fail(orErrorInvalidValue,
                "orStreamCreate: priority %d is out of range: %d (least) to %d", priority,
                Stream::kLeastPriority, Stream::kGreatestPriority);
  }
  return Streams::Get().Create(thread_state.device, priority, stream);
}

orError_t orStreamDestroy(orStream_t handle) {
  if (LeftBehind()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orStreamDestroy"); error != orSuccess) {
    return error;
  }
  Stream* stream = handle == nullptr ? nullptr : Streams::Get().Find(handle);
  if (stream == nullptr) {
    return Fail(orErrorInvalidHandle, "orStreamDestroy: %p is not a stream, or it was destroyed",
                static_cast<void*>(handle));
  }
  if (Capturing()) {
    if (const auto refused = Captures::Get().RefuseStream("orStreamDestroy", stream,
                                                          "and has to live until its end")) {
      return *refused;
    }
  }
  return Streams::Get().Destroy(stream, reinterpret_cast<uint64_t>(handle));
}

orError_t orStreamGetPriority(orStream_t handle, int* priority) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterQuery("orStreamGetPriority"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          FindStream("orStreamGetPriority", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (priority == nullptr) {
    return Fail(orErrorInvalidValue, "orStreamGetPriority: priority is null");
  }
  *priority = stream->priority();
  return orSuccess;
}

orError_t orStreamGetDevice(orStream_t handle, int* device) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterQuery("orStreamGetDevice"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          FindStream("orStreamGetDevice", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (device == nullptr) {
    return Fail(orErrorInvalidValue, "orStreamGetDevice: device is null");
  }
  *device = stream->device();
  return orSuccess;
}

orError_t orStreamQuery(orStream_t handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterQuery("orStreamQuery"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = FindStream("orStreamQuery", handle, kNothingRuns, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  const bool stopped = Stopped();  // before the look: then nothing comes any more
  if (stream->Idle()) {
    return orSuccess;
  }
  return stopped ? Fail(orErrorShutdown,
                        "orStreamQuery: queued commands were dropped: the process exits")
                 : orErrorNotReady;
}

orError_t orStreamSynchronize(orStream_t handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orStreamSynchronize", handle, kNothingRuns, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (!stream->WaitIdle()) {
    return Fail(orErrorShutdown,
                "orStreamSynchronize: queued commands were dropped: the process exits");
  }
  return ReportKernelError(stream->sink());
}

orError_t orGetDefaultStream(orStream_t* stream, int device) {
  if (const orError_t error = EnterQuery("orGetDefaultStream"); error != orSuccess) {
    return error;
  }
  if (stream == nullptr) {
    return Fail(orErrorInvalidValue, "orGetDefaultStream: stream is null");
  }
  if (const orError_t error = openreg::device::CheckDevice("orGetDefaultStream", device);
      error != orSuccess) {
    return error;
  }
  *stream = reinterpret_cast<orStream_t>(
      Streams::Get().Default(device)->handle.load(std::memory_order_relaxed));
  return orSuccess;
}

void orSetHostWaitHooks(const orHostWaitHooks* hooks) {
  openreg::device::host_wait_hooks.store(hooks, std::memory_order_release);
}

const orHostWaitHooks* orGetHostWaitHooks(void) {
  return openreg::device::host_wait_hooks.load(std::memory_order_acquire);
}
