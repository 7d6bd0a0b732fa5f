// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/executor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/device/error.h"
#include "runtime/device/futex.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
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
    return Fail(orErrorShutdown, "launch refused: the process exits");
  }
  if (!StartThread(
          &thread_, "openreg-exec", [](void* executor) { static_cast<Executor*>(executor)->Run(); },
          this)) {
    return Fail(orErrorSystem, "the thread of parallel kernels does not start: %s (ulimit -u)",
                std::strerror(errno));
  }
  joinable_ = true;
  started_.store(true, std::memory_order_release);
  return orSuccess;
}

void Executor::Submit(Stream* stream) {
  {
    std::lock_guard lock(mutex_);
    // Behind those of the same priority: lower numbers go first.
    const auto place = std::upper_bound(
        pending_.begin(), pending_.end(), stream->priority(),
        [](int priority, const Stream* waiting) { return priority < waiting->priority(); });
    pending_.insert(place, stream);
    pending_count_.store(static_cast<uint32_t>(pending_.size()), std::memory_order_seq_cst);
  }
  Notify();
}

Stream* Executor::TakePending() {
  if (!wanted()) {
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  if (pending_.empty()) {
    return nullptr;
  }
  Stream* stream = pending_.front();
  pending_.erase(pending_.begin());
  pending_count_.store(static_cast<uint32_t>(pending_.size()), std::memory_order_seq_cst);
  return stream;
}

void Executor::Notify() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(signal_, 1);
}

void Executor::Run() {
  Stream* kept = nullptr;  // the stream whose duty this thread has
  while (!Stopping()) {
    if (Stream* next = TakePending()) {
      if (kept != nullptr) {
        kept->OfferToWorker();  // its queue was empty a moment ago; its worker is parked
      }
      kept = next;
    }
    if (kept == nullptr) {
      Sleep(nullptr);
      continue;
    }
    switch (kept->Drain(Stream::Role::kExecutor)) {
      case Stream::Outcome::kEmpty:
        if (kept->closing_.load(std::memory_order_seq_cst)) {
          std::exchange(kept, nullptr)->Unpark();  // the worker ends the stream
        } else if (!kept->WatchTailOr([this] { return wanted(); })) {
          Sleep(kept);
        }
        break;
      case Stream::Outcome::kHandOver:
        std::exchange(kept, nullptr)->Unpark();
        break;
      case Stream::Outcome::kYield:
        if (kept->NextWantsTeam()) {
          Submit(std::exchange(kept, nullptr));
        } else {
          std::exchange(kept, nullptr)->OfferToWorker();
        }
        break;
      case Stream::Outcome::kStopped:
        return;
    }
  }
}

void Executor::Sleep(Stream* kept) {
  const uint32_t signal = signal_.load(std::memory_order_seq_cst);
  if (kept != nullptr) {
    kept->watch_.store(Stream::kExecutorSleeps, std::memory_order_seq_cst);
  }
  const bool work = wanted() || Stopping() || (kept != nullptr && kept->MustWake());
  if (!work) {
    FutexWait(signal_, signal);
  }
  if (kept != nullptr) {
    uint32_t sleeps = Stream::kExecutorSleeps;
    kept->watch_.compare_exchange_strong(sleeps, Stream::kWatched, std::memory_order_seq_cst);
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
