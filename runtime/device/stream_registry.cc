// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/stream_registry.h"

#include <pthread.h>

#include <new>
#include <utility>

#include "runtime/device/error.h"
#include "runtime/device/executor.h"
#include "runtime/device/process.h"

namespace openreg::device {

orError_t Streams::SetUp(int device_count) {
  for (int device = 0; device < device_count; ++device) {
    if (default_[device] != nullptr) {
      continue;  // an earlier call created it and then failed
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
    return table_.FailTake("a stream", "streams");
  }
  if (stream->ring_ == nullptr) {
    stream->ring_.reset(new (std::nothrow) Command[Stream::kRing]);
    if (stream->ring_ == nullptr) {
      table_.Recycle(stream);
      return Fail(orErrorSystem, "cannot create a stream: out of host memory for its queue");
    }
  }
  stream->device_.store(device, std::memory_order_relaxed);
  stream->priority_.store(priority, std::memory_order_relaxed);
  stream->on_end_ = &OnEnd;
  stream->started_ = false;
  stream->closing_.store(false, std::memory_order_relaxed);
  // Skip one position between two successive users of the slot.
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
    return Fail(orErrorInvalidValue,
                "orStreamDestroy: this is device %d's default stream, which cannot be destroyed",
                stream->device());
  }
  Reap();
  stream->producer_.lock();  // a concurrent launch either precedes this or fails
  const bool retired = table_.Retire(stream, handle);
  const bool started = stream->started_;
  if (retired) {
    stream->closing_.store(true, std::memory_order_seq_cst);
  }
  stream->producer_.unlock();
  if (!retired) {
    return Fail(orErrorInvalidHandle, "orStreamDestroy: stream %p was already destroyed",
                reinterpret_cast<void*>(handle));
  }
  if (started) {
    stream->WakeConsumer();
    return orSuccess;
  }
  // A kernel that another thread is running inline may still report an error. Reap checks again
  // later.
  if (stream->token_.load(std::memory_order_seq_cst) != Stream::kFree) {
    KeepEnded(stream);
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
      (void)Destroy(stream, handle);  // fails only if another thread destroyed it first
    }
  }
}

void Streams::KeepEnded(Stream* stream) {
  std::lock_guard lock(Stream::ThreadsMutex());
  ended_.push_back(stream);
  ended_count_.fetch_add(1, std::memory_order_release);
}

void Streams::OnEnd(Stream* stream) {
  Streams& streams = Get();
  streams.KeepOrphaned(stream);
  streams.KeepEnded(stream);
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
    std::lock_guard lock(Stream::ThreadsMutex());
    if (Stopping()) {
      return;  // ShutDown joins the threads
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
      // The thread has left its loop, so this does not block.
      pthread_join(stream->thread_, nullptr);
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
  auto take = [&](ErrorSink& sink) {
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
  take(orphaned_[device]);
  for (uint32_t index = 0; index < size(); ++index) {
    if (At(index)->device() == device) {
      take(At(index)->sink_);
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
    std::lock_guard lock(Stream::ThreadsMutex());
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

orError_t FailNoStream(const char* function, orStream_t handle) {
  return Fail(orErrorInvalidHandle, "%s: %p is not a valid stream; it may have been destroyed",
              function, static_cast<void*>(handle));
}

}  // namespace openreg::device
