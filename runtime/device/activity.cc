// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/activity.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/device/error.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/thread.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::device {
namespace {

std::atomic<orActivityBufferRequested_t> buffer_requested{nullptr};
std::atomic<orActivityBufferCompleted_t> buffer_completed{nullptr};
std::atomic<uint32_t> last_correlation{0};
std::atomic<uint64_t> recorded_commands{0};  // that have not ended

// A buffer of the profiler's.
struct Buffer {
  unsigned char* memory;
  size_t size;
  size_t used;
  // Where it goes, which is where it came from: the callbacks may change meanwhile.
  orActivityBufferCompleted_t completed;
};

struct Counts {
  uint64_t recorded = 0;
  uint64_t dropped = 0;
};

// The buffer of one thread, which writes to it; a flush takes it away.
class ThreadBuffer {
 public:
  void Write(const orActivity& activity) {
    Buffer* const busy = &busy_;
    Buffer* buffer = current_.exchange(busy, std::memory_order_acquire);
    if (buffer != nullptr && buffer->size - buffer->used < sizeof(activity)) {
      Complete(std::exchange(buffer, nullptr));
    }
    if (buffer == nullptr) {
      buffer = Request();
    }
    if (buffer != nullptr) {
      std::memcpy(buffer->memory + buffer->used, &activity, sizeof(activity));
      buffer->used += sizeof(activity);
      Add(&recorded_);
    } else {
      Add(&dropped_);
    }
    current_.store(buffer, std::memory_order_release);
  }

  // On any thread: completes what the thread has written so far, after the record that it is
  // writing at this moment.
  void Flush() {
    for (Backoff backoff;; backoff.Pause()) {
      Buffer* buffer = current_.load(std::memory_order_acquire);
      if (buffer == nullptr) {
        return;
      }
      if (buffer != &busy_ &&
          current_.compare_exchange_weak(buffer, nullptr, std::memory_order_acquire)) {
        Complete(buffer);
        return;
      }
    }
  }

  Counts counts() const {
    return {recorded_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed)};
  }

 private:
  static void Complete(Buffer* buffer) {
    const std::unique_ptr<Buffer> owned(buffer);
    owned->completed(owned->memory, owned->used);
  }

  static Buffer* Request() {
    const orActivityBufferRequested_t requested = buffer_requested.load(std::memory_order_acquire);
    const orActivityBufferCompleted_t completed = buffer_completed.load(std::memory_order_acquire);
    if (requested == nullptr || completed == nullptr) {
      return nullptr;
    }
    void* memory = nullptr;
    size_t size = 0;
    requested(&memory, &size);
    if (memory == nullptr) {
      return nullptr;
    }
    if (size < sizeof(orActivity)) {
      completed(memory, 0);
      return nullptr;
    }
    return std::make_unique<Buffer>(Buffer{static_cast<unsigned char*>(memory), size, 0, completed})
        .release();
  }

  // Only the thread itself adds.
  static void Add(std::atomic<uint64_t>* count) {
    count->store(count->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Buffer busy_{};  // stands in `current_` while the thread uses its buffer
  std::atomic<Buffer*> current_{nullptr};
  std::atomic<uint64_t> recorded_{0};
  std::atomic<uint64_t> dropped_{0};
};

// The threads that have written a record and have not ended.
class ThreadBuffers {
 public:
  static ThreadBuffers& Get() {
    static ThreadBuffers& buffers = *new ThreadBuffers;  // never destroyed: threads end late
    return buffers;
  }

  void Add(ThreadBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    buffers_.push_back(buffer);
  }

  void Remove(ThreadBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    buffer->Flush();
    std::erase(buffers_, buffer);
    ended_.recorded += buffer->counts().recorded;
    ended_.dropped += buffer->counts().dropped;
  }

  void FlushAll() {
    const std::lock_guard lock(mutex_);
    for (ThreadBuffer* const buffer : buffers_) {
      buffer->Flush();
    }
  }

  Counts counts() {
    const std::lock_guard lock(mutex_);
    Counts sum = ended_;
    for (const ThreadBuffer* const buffer : buffers_) {
      sum.recorded += buffer->counts().recorded;
      sum.dropped += buffer->counts().dropped;
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  std::vector<ThreadBuffer*> buffers_;
  Counts ended_;
};

// Of one thread: its buffer from its first record to its end.
class OwnBuffer {
 public:
  OwnBuffer() { ThreadBuffers::Get().Add(&buffer_); }
  ~OwnBuffer() {
    // In the child of a fork the lock may be held by a thread that the child does not have.
    if (!InForkedChild()) {
      ThreadBuffers::Get().Remove(&buffer_);
    }
  }
  OwnBuffer(const OwnBuffer&) = delete;
  OwnBuffer& operator=(const OwnBuffer&) = delete;

  ThreadBuffer& operator*() { return buffer_; }

 private:
  ThreadBuffer buffer_;
};

// The ids that a thread has pushed, by kind.
thread_local std::vector<uint64_t> pushed_ids[2];

uint64_t LastId(orActivityIdKind kind) {
  return pushed_ids[kind].empty() ? 0 : pushed_ids[kind].back();
}

bool IsKind(orActivityIdKind kind) {
  return kind == orActivityIdExternal || kind == orActivityIdUser;
}

}  // namespace

uint64_t ActivityTime() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

void WriteActivity(const orActivity& activity) {
  thread_local OwnBuffer own;
  (*own).Write(activity);
}

void BeginRecordedCommand() { recorded_commands.fetch_add(1, std::memory_order_relaxed); }
void EndRecordedCommand() { recorded_commands.fetch_sub(1, std::memory_order_release); }

void CallActivity::Begin(const char* function) {
  thread_local const int32_t thread = gettid();
  record_ = {};
  record_.kind = orActivityRuntime;
  do {  // 0 is none
    record_.correlation = last_correlation.fetch_add(1, std::memory_order_relaxed) + 1;
  } while (record_.correlation == 0);
  record_.name = function;
  record_.external_id = LastId(orActivityIdExternal);
  record_.user_id = LastId(orActivityIdUser);
  record_.thread = thread;
  record_.device = -1;
  record_.stream = -1;
  record_.copy = orMemcpyDefault;
  record_.start_ns = ActivityTime();
}

void CallActivity::End() {
  record_.end_ns = ActivityTime();
  WriteActivity(record_);
}

orActivity CallActivity::ForWork() const {
  orActivity record = record_;
  record.start_ns = 0;
  record.queued_ns = ActivityTime();
  record.object = 0;
  record.bytes = 0;
  return record;
}

extern "C" {

OPENREG_API orError_t orActivityRegisterCallbacks(orActivityBufferRequested_t requested,
                                                  orActivityBufferCompleted_t completed) {
  if ((requested == nullptr) != (completed == nullptr)) {
    return Fail(orErrorInvalidValue,
                "orActivityRegisterCallbacks: one of the functions is null: pass both, or none");
  }
  if (Tracing()) {
    return Fail(orErrorNotPermitted,
                "orActivityRegisterCallbacks: tracing is on: call orActivityDisableTracing first");
  }
  buffer_completed.store(completed, std::memory_order_release);
  buffer_requested.store(requested, std::memory_order_release);
  return orSuccess;
}

OPENREG_API orError_t orActivityEnableTracing(void) {
  if (const orError_t error = EnterQuery("orActivityEnableTracing"); error != orSuccess) {
    return error;
  }
  mode.fetch_or(kTracing, std::memory_order_acq_rel);
  return orSuccess;
}

OPENREG_API orError_t orActivityDisableTracing(void) {
  mode.fetch_and(~static_cast<uint32_t>(kTracing), std::memory_order_acq_rel);
  return orSuccess;
}

OPENREG_API int orActivityIsEnabled(void) { return Tracing() ? 1 : 0; }

OPENREG_API orError_t orActivityFlushAll(void) {
  if (const orError_t error = EnterQuery("orActivityFlushAll"); error != orSuccess) {
    return error;
  }
  const auto over = [] {
    return recorded_commands.load(std::memory_order_acquire) == 0 || Stopping();
  };
  if (!Tracing() && thread_state.running == nullptr && !over()) {
    const HostWait wait;
    for (Backoff backoff; !over(); backoff.Pause()) {
    }
  }
  ThreadBuffers::Get().FlushAll();
  return orSuccess;
}

OPENREG_API orError_t orActivityGetCounts(uint64_t* recorded, uint64_t* dropped) {
  if (const orError_t error = EnterQuery("orActivityGetCounts"); error != orSuccess) {
    return error;
  }
  if (recorded == nullptr || dropped == nullptr) {
    return Fail(orErrorInvalidValue, "orActivityGetCounts: recorded and dropped must not be null");
  }
  const Counts counts = ThreadBuffers::Get().counts();
  *recorded = counts.recorded;
  *dropped = counts.dropped;
  return orSuccess;
}

OPENREG_API orError_t orActivityPushExternalCorrelationId(orActivityIdKind kind, uint64_t id) {
  if (!IsKind(kind)) {
    return Fail(orErrorInvalidValue,
                "orActivityPushExternalCorrelationId: kind %d is none of orActivityIdKind",
                static_cast<int>(kind));
  }
  pushed_ids[kind].push_back(id);
  return orSuccess;
}

OPENREG_API orError_t orActivityPopExternalCorrelationId(orActivityIdKind kind, uint64_t* id) {
  if (!IsKind(kind)) {
    return Fail(orErrorInvalidValue,
                "orActivityPopExternalCorrelationId: kind %d is none of orActivityIdKind",
                static_cast<int>(kind));
  }
  if (pushed_ids[kind].empty()) {
    return Fail(orErrorInvalidValue,
                "orActivityPopExternalCorrelationId: this thread has pushed no id of kind %d",
                static_cast<int>(kind));
  }
  if (id != nullptr) {
    *id = pushed_ids[kind].back();
  }
  pushed_ids[kind].pop_back();
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
