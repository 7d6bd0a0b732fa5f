// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/activity.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/device/error.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/thread.h"
#include "runtime/sync/spin_lock.h"

namespace openreg::device {
namespace {

// The two functions that the profiler registers. A registered pair never changes, so threads read
// it without a lock.
struct Callbacks {
  orActivityBufferRequested_t requested;
  orActivityBufferCompleted_t completed;
  bool operator==(const Callbacks&) const = default;
};

std::atomic<const Callbacks*> callbacks{nullptr};
std::atomic<uint32_t> last_correlation{0};
std::atomic<uint64_t> pending_records{0};

// A buffer that the profiler provided and owns.
struct Buffer {
  unsigned char* memory;
  size_t size;
  size_t used;
  const Callbacks* owner;  // the callbacks that provided the buffer and receive it back
};

struct Counts {
  uint64_t recorded = 0;
  uint64_t dropped = 0;
};

// The current buffer of one thread. The thread writes to it. A flush takes the buffer away.
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

  // Passes the buffer, with the records written so far, to the profiler. Any thread may call it.
  // Waits while the owning thread is writing a record.
  void Flush() {
    for (Backoff backoff;; backoff.Pause()) {
      Buffer* buffer = current_.load(std::memory_order_acquire);
      if (buffer == nullptr) {
        return;
      }
      if (buffer != &busy_ &&
          current_.compare_exchange_weak(buffer, nullptr, std::memory_order_acq_rel)) {
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
    owned->owner->completed(owned->memory, owned->used);
  }

  static Buffer* Request() {
    const Callbacks* const owner = callbacks.load(std::memory_order_acquire);
    if (owner == nullptr) {
      return nullptr;
    }
    // Do not throw an exception: the caller may be in the middle of a launch, or on a stream's
    // thread.
    std::unique_ptr<Buffer> buffer(new (std::nothrow) Buffer{nullptr, 0, 0, owner});
    if (buffer == nullptr) {
      return nullptr;
    }
    void* memory = nullptr;
    owner->requested(&memory, &buffer->size);
    if (memory == nullptr) {
      return nullptr;
    }
    if (buffer->size < sizeof(orActivity)) {
      owner->completed(memory, 0);
      return nullptr;
    }
    buffer->memory = static_cast<unsigned char*>(memory);
    return buffer.release();
  }

  // Increments a counter that only the owning thread changes.
  static void Add(std::atomic<uint64_t>* count) {
    count->store(count->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Buffer busy_{};  // `current_` points to it while the thread uses its buffer
  std::atomic<Buffer*> current_{nullptr};
  std::atomic<uint64_t> recorded_{0};
  std::atomic<uint64_t> dropped_{0};
};

// The buffers of all threads that have written a record and have not ended yet.
class ThreadBuffers {
 public:
  static ThreadBuffers& Get() {
    // Never destroyed, because threads may end late.
    static ThreadBuffers& buffers = *new ThreadBuffers;
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

  // Counts a dropped record. The record is dropped because the buffer of its thread is already
  // gone.
  void Drop() {
    const std::lock_guard lock(mutex_);
    ++ended_.dropped;
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

// The names to which records refer. They stay valid until the process ends.
class Names {
 public:
  static Names& Get() {
    // Never destroyed, because records refer to the names.
    static Names& names = *new Names;
    return names;
  }

  const char* Intern(const char* name) {
    const std::lock_guard lock(mutex_);
    return names_.emplace(name).first->c_str();
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> names_;  // a node-based set, so its elements never move
};

// The data of one thread, from its first record until it ends: its buffer, the ids that it has
// pushed (by kind), and the names that it has recently used.
class ThreadRecords {
 public:
  // Returns this thread's object. Returns null if the thread is ending and has already destroyed
  // the object.
  static ThreadRecords* Get() {
    if (ended) {
      return nullptr;
    }
    thread_local ThreadRecords records;
    return &records;
  }

  ThreadBuffer buffer;
  std::vector<uint64_t> ids[2];

  uint64_t LastId(orActivityIdKind kind) const { return ids[kind].empty() ? 0 : ids[kind].back(); }

  // Returns the interned name. First looks up recently used addresses without a lock, because a
  // kernel's name has the same address in every launch. The text is compared, too: the address may
  // now belong to another library, loaded after the first one was unloaded.
  const char* Intern(const char* name) {
    if (names_.empty()) {
      names_.resize(kNames);
    }
    KnownName& known = names_[(reinterpret_cast<uintptr_t>(name) >> 3) % kNames];
    if (known.address != name || std::strcmp(known.interned, name) != 0) {
      known = {name, Names::Get().Intern(name)};
    }
    return known.interned;
  }

 private:
  struct KnownName {
    const char* address = nullptr;
    const char* interned = nullptr;
  };
  static constexpr size_t kNames = 256;

  ThreadRecords() { ThreadBuffers::Get().Add(&buffer); }
  ~ThreadRecords() {
    ended = true;
    // In a forked child, a thread that exists only in the parent may hold the lock.
    if (!InForkedChild()) {
      ThreadBuffers::Get().Remove(&buffer);
    }
  }
  ThreadRecords(const ThreadRecords&) = delete;
  ThreadRecords& operator=(const ThreadRecords&) = delete;

  static thread_local bool ended;  // has no destructor, so it can be read at any time

  std::vector<KnownName> names_;
};

constinit thread_local bool ThreadRecords::ended = false;

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
  if (ThreadRecords* const thread = ThreadRecords::Get()) {
    thread->buffer.Write(activity);
  } else {
    ThreadBuffers::Get().Drop();
  }
}

void DropActivity() { ThreadBuffers::Get().Drop(); }

void BeginPendingRecords() { pending_records.fetch_add(1, std::memory_order_seq_cst); }
void EndPendingRecords() { pending_records.fetch_sub(1, std::memory_order_release); }

const char* InternName(const char* name) {
  if (name == nullptr) {
    return nullptr;
  }
  ThreadRecords* const thread = ThreadRecords::Get();
  return thread != nullptr ? thread->Intern(name) : Names::Get().Intern(name);
}

// Begins a pending record. Returns false if tracing was turned off after the caller checked it: the
// flush that must wait for this call may already have returned.
bool CallActivity::BeginPendingCall() {
  BeginPendingRecords();
  if ((mode.load(std::memory_order_seq_cst) & kTracing) != 0) {
    return true;
  }
  EndPendingRecords();
  return false;
}

void CallActivity::Begin(const char* function, Kind kind) {
  thread_local const int32_t thread = gettid();
  record_ = {};
  pending_ = kind == kSubmits;
  if (pending_ && !BeginPendingCall()) {
    return;
  }
  record_.kind = orActivityRuntime;
  do {  // skip 0, which means no correlation
    record_.correlation = last_correlation.fetch_add(1, std::memory_order_relaxed) + 1;
  } while (record_.correlation == 0);
  record_.name = function;
  if (const ThreadRecords* const records = ThreadRecords::Get()) {
    record_.external_id = records->LastId(orActivityIdExternal);
    record_.user_id = records->LastId(orActivityIdUser);
  }
  record_.thread = thread;
  record_.device = -1;
  record_.stream = -1;
  record_.copy = orMemcpyDefault;
  record_.start_ns = ActivityTime();
}

void CallActivity::End() {
  record_.end_ns = ActivityTime();
  if (pending_ || BeginPendingCall()) {
    WriteActivity(record_);
    EndPendingRecords();
  }
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
                "orActivityRegisterCallbacks: one of the functions is null: pass two functions or "
                "two null pointers");
  }
  if (Tracing()) {
    return Fail(orErrorNotPermitted,
                "orActivityRegisterCallbacks: tracing is on: call orActivityDisableTracing first");
  }
  static std::mutex& mutex = *new std::mutex;
  static auto& pairs = *new std::vector<std::unique_ptr<const Callbacks>>;
  const std::lock_guard lock(mutex);
  if (requested == nullptr) {
    callbacks.store(nullptr, std::memory_order_release);
    return orSuccess;
  }
  const Callbacks* const registered = callbacks.load(std::memory_order_relaxed);
  const Callbacks pair{requested, completed};
  if (registered != nullptr && *registered != pair) {
    return Fail(orErrorNotPermitted,
                "orActivityRegisterCallbacks: another profiler has registered its functions, even "
                "if it is paused: it must first unregister them by passing two null pointers");
  }
  auto known = std::find_if(pairs.begin(), pairs.end(),
                            [&](const auto& candidate) { return *candidate == pair; });
  if (known == pairs.end()) {
    known = pairs.insert(known, std::make_unique<const Callbacks>(pair));
  }
  callbacks.store(known->get(), std::memory_order_release);
  return orSuccess;
}

OPENREG_API orError_t orActivityEnableTracing(void) {
  if (const orError_t error = EnterQuery("orActivityEnableTracing"); error != orSuccess) {
    return error;
  }
  mode.fetch_or(kTracing, std::memory_order_seq_cst);
  return orSuccess;
}

OPENREG_API orError_t orActivityDisableTracing(void) {
  mode.fetch_and(~static_cast<uint32_t>(kTracing), std::memory_order_seq_cst);
  return orSuccess;
}

OPENREG_API int orActivityIsEnabled(void) { return Tracing() ? 1 : 0; }

OPENREG_API orError_t orActivityFlushAll(void) {
  if (const orError_t error = EnterQuery("orActivityFlushAll"); error != orSuccess) {
    return error;
  }
  const auto over = [] {
    return pending_records.load(std::memory_order_seq_cst) == 0 || Tracing() || Stopping();
  };
  if (thread_state.running == nullptr && !over()) {
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
  if (const orError_t error =
          CheckNotNull("orActivityGetCounts", {{"recorded", recorded}, {"dropped", dropped}});
      error != orSuccess) {
    return error;
  }
  const Counts counts = ThreadBuffers::Get().counts();
  *recorded = counts.recorded;
  *dropped = counts.dropped;
  return orSuccess;
}

OPENREG_API orError_t orActivityPushExternalCorrelationId(orActivityIdKind kind, uint64_t id) {
  if (!IsKind(kind)) {
    return Fail(orErrorInvalidValue,
                "orActivityPushExternalCorrelationId: kind %d is not an orActivityIdKind",
                static_cast<int>(kind));
  }
  if (ThreadRecords* const records = ThreadRecords::Get()) {
    records->ids[kind].push_back(id);
  }
  return orSuccess;
}

OPENREG_API orError_t orActivityPopExternalCorrelationId(orActivityIdKind kind, uint64_t* id) {
  if (!IsKind(kind)) {
    return Fail(orErrorInvalidValue,
                "orActivityPopExternalCorrelationId: kind %d is not an orActivityIdKind",
                static_cast<int>(kind));
  }
  ThreadRecords* const records = ThreadRecords::Get();
  if (records == nullptr || records->ids[kind].empty()) {
    return Fail(orErrorInvalidValue,
                "orActivityPopExternalCorrelationId: this thread has no pushed id of kind %d",
                static_cast<int>(kind));
  }
  if (id != nullptr) {
    *id = records->ids[kind].back();
  }
  records->ids[kind].pop_back();
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
