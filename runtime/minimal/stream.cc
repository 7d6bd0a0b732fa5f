// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/minimal/stream.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "runtime/device/host_wait.h"
#include "runtime/minimal/driver.h"

namespace openreg::minimal {
namespace {

constexpr size_t kMaxStreams = 4096;
constinit std::atomic<uint64_t> failure_count{0};

}  // namespace

orError_t Report(const Failure& failure) {
  return failure.error == orSuccess ? orSuccess : Fail(failure.error, "%s", failure.text.c_str());
}

// Tries to queue the command. Returns false if the queue is full.
bool Stream::TryQueue(Command* command, uint64_t* position, orError_t* error) {
  const std::lock_guard lock(mutex_);
  *error = stopped_ ? orErrorShutdown : orSuccess;
  if (stopped_ || queue_.size() == kCapacity) {
    return stopped_;
  }
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread(&Stream::Run, this);
    } catch (const std::system_error&) {
      *error = orErrorSystem;
      return true;
    }
  }
  queue_.push_back(std::move(*command));
  ++queued_;
  if (position != nullptr) {
    *position = queued_;
  }
  changed_.notify_all();
  return true;
}

orError_t Stream::Queue(const char* function, Command command, uint64_t* position) {
  orError_t error = orSuccess;
  while (!TryQueue(&command, position, &error)) {
    const HostWait wait;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.size() < kCapacity || stopped_; });
  }
  return error == orSuccess ? orSuccess
         : error == orErrorShutdown
             ? Fail(error, "%s: the process is exiting", function)
             : Fail(error, "%s: no thread can be started (ulimit -u)", function);
}

// Waits for the command at the position. Returns false if the command was dropped.
bool Stream::Await(uint64_t position) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= position || ended_; });
  return done_ >= position;
}

orError_t Stream::Wait(const char* function, uint64_t position) {
  State state = StateOf(position);
  if (state == State::kPending) {
    const HostWait wait;
    state = Await(position) ? State::kDone : State::kDropped;
  }
  return state == State::kDone
             ? orSuccess
             : Fail(orErrorShutdown,
                    "%s: queued commands were dropped because the process is exiting", function);
}

uint64_t Stream::last_position() {
  const std::lock_guard lock(mutex_);
  return queued_;
}

Stream::State Stream::StateOf(uint64_t position) {
  const std::lock_guard lock(mutex_);
  return done_ >= position ? State::kDone : ended_ ? State::kDropped : State::kPending;
}

Failure Stream::TakeFailure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, {});
}

uint64_t Stream::failure_order() {
  const std::lock_guard lock(mutex_);
  return failure_.error == orSuccess ? UINT64_MAX : failure_.order;
}

void Stream::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  ended_ = !thread_.joinable();
  changed_.notify_all();
}

void Stream::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  // If this thread called exit() in a kernel, it never returns to the loop in Run().
  ended_ = !thread_.joinable() || ended_ || thread_.get_id() == std::this_thread::get_id();
  changed_.notify_all();
}

bool Stream::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void Stream::Join() {
  if (thread_.joinable()) {
    thread_.get_id() == std::this_thread::get_id() ? thread_.detach() : thread_.join();
  }
}

void Stream::Run() {
  thread_state.in_kernel = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !queue_.empty() || closed_ || stopped_; });
    if (queue_.empty() || stopped_) {
      break;
    }
    Command command = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (command.source != nullptr && !command.source->Await(command.source_position)) {
      lock.lock();
      break;  // the process is exiting
    }
    Failure failure;
    thread_state.device = device_;
    failure.error = command.run ? command.run(&failure.text) : orSuccess;
    failure.order = ++failure_count;
    // Also destroys everything that the command owns.
    Failure* const own = std::exchange(command, {}).failure;
    lock.lock();
    if (failure.error != orSuccess && (own != nullptr || failure_.error == orSuccess)) {
      (own != nullptr ? *own : failure_) = std::move(failure);
    }
    ++done_;
    changed_.notify_all();
  }
  ended_ = true;
  changed_.notify_all();
}

Streams& Streams::Get() {
  static Streams& streams = *new Streams;  // never destroyed: the threads may run until the end
  return streams;
}

void Streams::CreateDefaults(int device_count) {
  for (int device = 0; device < device_count; ++device) {
    defaults_.push_back(table_.Add(std::make_shared<Stream>(device, 0), kMaxStreams));
  }
}

orError_t Streams::Find(const char* function, orStream_t handle, std::shared_ptr<Stream>* stream) {
  *stream = table_.Find(handle != nullptr ? handle : Default(thread_state.device));
  return *stream != nullptr ? orSuccess
                            : Fail(orErrorInvalidHandle,
                                   "%s: %p is not a valid stream; it may have been destroyed",
                                   function, static_cast<void*>(handle));
}

orError_t Streams::Create(int device, int priority, orStream_t* handle) {
  JoinEnded();
  *handle = table_.Add(std::make_shared<Stream>(device, priority), kMaxStreams);
  return *handle != nullptr
             ? orSuccess
             : Fail(orErrorSystem,
                    "cannot create a stream: the limit of %zu streams has been reached; destroy "
                    "streams that are no longer needed",
                    kMaxStreams);
}

orError_t Streams::Destroy(orStream_t handle) {
  if (std::find(defaults_.begin(), defaults_.end(), handle) != defaults_.end()) {
    return Fail(orErrorInvalidValue,
                "orStreamDestroy: this is a device's default stream, which cannot be destroyed");
  }
  const std::shared_ptr<Stream> stream = table_.Remove(handle);
  if (stream == nullptr) {
    return Fail(orErrorInvalidHandle,
                "orStreamDestroy: %p is not a valid stream; it may have been destroyed",
                static_cast<void*>(handle));
  }
  stream->Close();
  const std::lock_guard lock(mutex_);
  destroyed_.push_back(stream);
  return orSuccess;
}

void Streams::JoinEnded() {
  const std::lock_guard lock(mutex_);
  std::erase_if(destroyed_, [](const std::shared_ptr<Stream>& stream) {
    const bool erase = stream->ended() && stream->failure_order() == UINT64_MAX;
    if (erase) {
      stream->Join();
    }
    return erase;
  });
}

std::vector<std::shared_ptr<Stream>> Streams::OfDevice(int device) {
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [handle, stream] : table_.All()) {
    streams.push_back(stream);
  }
  const std::lock_guard lock(mutex_);
  streams.insert(streams.end(), destroyed_.begin(), destroyed_.end());
  std::erase_if(streams, [&](const auto& stream) { return stream->device() != device; });
  return streams;
}

orError_t Streams::Synchronize(const char* function, int device, Failure* failure) {
  const std::vector<std::shared_ptr<Stream>> streams = OfDevice(device);
  for (const std::shared_ptr<Stream>& stream : streams) {
    RETURN_IF_ERROR(stream->Wait(function, stream->last_position()));
  }
  *failure = (*std::min_element(streams.begin(), streams.end(), [](const auto& a, const auto& b) {
               return a->failure_order() < b->failure_order();
             }))->TakeFailure();
  JoinEnded();
  return orSuccess;
}

orError_t Streams::Reset(const char* function, int device) {
  for (const auto& [handle, stream] : table_.All()) {
    if (stream->device() == device && handle != Default(device)) {
      (void)Destroy(handle);
    }
  }
  Failure failure;
  do {
    RETURN_IF_ERROR(Synchronize(function, device, &failure));
  } while (std::exchange(failure, {}).error != orSuccess);
  return orSuccess;
}

void Streams::ShutDown() {
  std::vector<std::shared_ptr<Stream>> streams;
  for (int device = 0; device < static_cast<int>(defaults_.size()); ++device) {
    const auto more = OfDevice(device);
    streams.insert(streams.end(), more.begin(), more.end());
  }
  for (const std::shared_ptr<Stream>& stream : streams) {
    stream->Stop();
  }
  const std::lock_guard lock(mutex_);  // JoinEnded may be running in another thread
  for (const std::shared_ptr<Stream>& stream : streams) {
    stream->Join();
  }
}

}  // namespace openreg::minimal
