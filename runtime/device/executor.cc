// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/executor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/device/error.h"
#include "runtime/device/futex.h"
#include "runtime/device/process.h"
#include "runtime/device/thread.h"

namespace openreg::device {

Executor& Executor::Get() {
  static Executor& executor = *new Executor;
  return executor;
}

orError_t Executor::Start() {
  if (started_.load(std::memory_order_acquire)) [[likely]] {
    return orSuccess;
  }
  std::lock_guard lock(mutex_);
  if (started_.load(std::memory_order_relaxed)) {
    return orSuccess;
  }
  if (Stopping()) {
    return Fail(orErrorShutdown, "cannot queue a parallel kernel because the process is exiting");
  }
  if (!StartThread(
          &thread_, "openreg-exec", [](void* executor) { static_cast<Executor*>(executor)->Run(); },
          this)) {
    return Fail(orErrorSystem,
                "cannot start the executor thread for parallel kernels: %s (ulimit -u)",
                std::strerror(errno));
  }
  joinable_ = true;
  started_.store(true, std::memory_order_release);
  return orSuccess;
}

void Executor::Submit(ExecutorQueue* queue) {
  {
    std::lock_guard lock(mutex_);
    // Insert the queue behind all others with the same priority. Lower numbers are served first.
    const auto place = std::upper_bound(
        pending_.begin(), pending_.end(), queue->priority(),
        [](int priority, const ExecutorQueue* waiting) { return priority < waiting->priority(); });
    pending_.insert(place, queue);
    pending_count_.store(static_cast<uint32_t>(pending_.size()), std::memory_order_seq_cst);
  }
  Notify();
}

ExecutorQueue* Executor::TakePending() {
  if (!wanted()) {
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  if (pending_.empty()) {
    return nullptr;
  }
  ExecutorQueue* queue = pending_.front();
  pending_.erase(pending_.begin());
  pending_count_.store(static_cast<uint32_t>(pending_.size()), std::memory_order_seq_cst);
  return queue;
}

void Executor::Notify() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(signal_, 1);
}

void Executor::Run() {
  ExecutorQueue* kept = nullptr;  // the stream for which this thread is the watcher
  while (!Stopping()) {
    if (ExecutorQueue* next = TakePending()) {
      if (kept != nullptr) {
        kept->OfferToWorker();  // its queue was empty at the last check, and its worker is parked
      }
      kept = next;
    }
    if (kept == nullptr) {
      Sleep(nullptr);
      continue;
    }
    switch (kept->DrainOnExecutor()) {
      case ExecutorQueue::Outcome::kEmpty:
        if (kept->Closing()) {
          std::exchange(kept, nullptr)->Unpark();  // the worker must end the stream
        } else if (!kept->SpinForCommand()) {
          Sleep(kept);
        }
        break;
      case ExecutorQueue::Outcome::kHandOver:
        std::exchange(kept, nullptr)->Unpark();
        break;
      case ExecutorQueue::Outcome::kYield:
        if (kept->NextWantsTeam()) {
          Submit(std::exchange(kept, nullptr));
        } else {
          std::exchange(kept, nullptr)->OfferToWorker();
        }
        break;
      case ExecutorQueue::Outcome::kStopped:
        return;
    }
  }
}

void Executor::Sleep(ExecutorQueue* kept) {
  const uint32_t signal = signal_.load(std::memory_order_seq_cst);
  const bool may_sleep = kept == nullptr || kept->BeginSleep();
  if (may_sleep && !wanted() && !Stopping()) {
    FutexWait(signal_, signal);
  }
  if (kept != nullptr) {
    kept->EndSleep();
  }
}

void Executor::ShutDown() {
  Notify();
  bool join;
  {
    std::lock_guard lock(mutex_);
    join = std::exchange(joinable_, false);
  }
  if (!join) {
    return;
  }
  if (pthread_equal(thread_, pthread_self())) {
    pthread_detach(thread_);  // a parallel kernel called exit()
  } else {
    pthread_join(thread_, nullptr);
  }
}

}  // namespace openreg::device
