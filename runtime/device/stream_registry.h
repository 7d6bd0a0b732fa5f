// SPDX-License-Identifier: BSD-3-Clause
//
// stream_registry.h - the registry of all streams in the process.
//
// Streams are allocated in a table and never freed. A destroyed stream runs its remaining commands,
// then its thread ends and its slot becomes available to the next user. There is one registry,
// which is never destroyed. Any thread may call it.
#ifndef RUNTIME_DEVICE_STREAM_REGISTRY_H_
#define RUNTIME_DEVICE_STREAM_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/handle.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/openreg.h"
#include "runtime/device/stream.h"
#include "runtime/device/thread.h"

namespace openreg::device {

class Streams {
 public:
  static Streams& Get() {
    static Streams& streams = *new Streams;  // never destroyed: threads and late calls use it
    return streams;
  }

  // Creates the default stream of each device. Called once.
  orError_t SetUp(int device_count);

  // Returns the stream of a handle, or null if no live stream has this handle. A null handle
  // denotes the default stream of the thread's current device.
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

  // Waits for all streams of a device, including destroyed streams that still have commands to run.
  bool WaitIdle(int device);

  // Removes and returns the earliest error of a device's streams. Returns null if there is none.
  std::unique_ptr<KernelError> TakeError(int device);

  // Ends all threads; see orShutdown.
  void ShutDown();

 private:
  void Reap();
  void KeepEnded(Stream* stream);
  static void OnEnd(Stream* stream);  // see Stream::on_end_

  // Moves the error of a destroyed stream to its device.
  void KeepOrphaned(Stream* stream);

  HandleTable<Stream, Stream::kIndexBits, 1> table_;
  Stream* default_[OPENREG_MAX_DEVICES] = {};
  // Held while an error is moved to its device, so that no reader misses the error.
  std::mutex errors_mutex_;
  ErrorSink orphaned_[OPENREG_MAX_DEVICES];  // errors of destroyed streams

  // Guarded by Stream::ThreadsMutex(). Contains streams whose threads have ended and must be
  // joined. Also contains streams without a thread whose last kernel was running inline when they
  // were destroyed.
  std::vector<Stream*> ended_;
  std::atomic<uint32_t> ended_count_{0};
};

[[gnu::cold, gnu::noinline]] orError_t FailNoStream(const char* function, orStream_t handle);

// Looks up the stream of a handle and fails if there is none. `expected` receives the stream's own
// handle, even if `handle` is null and denotes a default stream.
[[gnu::always_inline]] inline orError_t FindStream(const char* function, orStream_t handle,
                                                   Stream** stream, uint64_t* expected) {
  *stream = Streams::Get().Find(handle);
  if (*stream == nullptr) [[unlikely]] {
    return FailNoStream(function, handle);
  }
  *expected = handle == nullptr ? (*stream)->handle.load(std::memory_order_relaxed)
                                : reinterpret_cast<uint64_t>(handle);
  return orSuccess;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_STREAM_REGISTRY_H_
