// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/stream.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/error.h"

namespace openreg {
namespace {

static_assert(sizeof(orStream_t) == sizeof(c10::StreamId));

// Each device's current stream on this thread; null means the default stream. A thread allocates
// the array when it first changes a current stream, which most threads never do. Static TLS
// therefore contains only one pointer.
using CurrentStreams = std::array<orStream_t, OPENREG_MAX_DEVICES>;
thread_local CurrentStreams* current_streams = nullptr;

// Owns the array and deletes it at thread exit. If other thread-local objects are destroyed later,
// their launches use the default streams.
struct CurrentStreamsOwner {
  CurrentStreamsOwner() { current_streams = std::make_unique<CurrentStreams>().release(); }
  ~CurrentStreamsOwner() {
    std::unique_ptr<CurrentStreams>(std::exchange(current_streams, nullptr)).reset();
  }
  CurrentStreamsOwner(const CurrentStreamsOwner&) = delete;
  CurrentStreamsOwner& operator=(const CurrentStreamsOwner&) = delete;
};

orStream_t default_handle(c10::DeviceIndex device) {
  static std::array<std::atomic<orStream_t>, OPENREG_MAX_DEVICES> handles{};
  auto& handle = handles[static_cast<size_t>(device)];
  orStream_t stream = handle.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(stream == nullptr)) {
    initialize();
    OPENREG_CHECK(orGetDefaultStream(&stream, device));
    handle.store(stream, std::memory_order_relaxed);
  }
  return stream;
}

c10::Stream wrap(orStream_t handle, c10::DeviceIndex device) {
  const c10::Device where(kOpenRegType, device);
  if (handle == default_handle(device)) {
    return c10::Stream(c10::Stream::DEFAULT, where);
  }
  return c10::Stream(c10::Stream::UNSAFE, where, reinterpret_cast<c10::StreamId>(handle));
}

// The stream pool for one device and one priority.
struct Pool {
  std::mutex mutex;
  std::array<orStream_t, kStreamsPerPool> streams{};
  size_t next = 0;

  orStream_t take(c10::DeviceIndex device, int priority) {
    const std::lock_guard<std::mutex> lock(mutex);
    orStream_t& stream = streams[next++ % kStreamsPerPool];
    if (stream == nullptr) {
      const DeviceScope scope(device);
      OPENREG_CHECK(orStreamCreateWithPriority(&stream, 0, priority));
    }
    return stream;
  }
};

constexpr int kMaxPriorities = 8;

}  // namespace

orStream_t native_stream(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kOpenRegType,
              "expected a stream of device openreg, but got a stream of ", stream.device());
  if (stream.id() == 0) {
    return default_handle(resolve_device(stream.device_index()));
  }
  return reinterpret_cast<orStream_t>(stream.id());
}

orStream_t current_native_stream(c10::DeviceIndex device) {
  if (C10_UNLIKELY(current_streams != nullptr)) {
    const orStream_t stream = (*current_streams)[static_cast<size_t>(device)];
    if (stream != nullptr) {
      return stream;
    }
  }
  return default_handle(device);
}

c10::Stream default_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(kOpenRegType, resolve_device(device)));
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve_device(device);
  if (current_streams != nullptr) {
    const orStream_t stream = (*current_streams)[static_cast<size_t>(index)];
    if (stream != nullptr) {
      return wrap(stream, index);
    }
  }
  return default_stream(index);
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  const c10::DeviceIndex device = resolve_device(stream.device_index());
  const c10::Stream previous = current_stream(device);
  const orStream_t handle = stream.id() == 0 ? nullptr : native_stream(stream);
  if (handle != nullptr) {
    int owner = 0;
    OPENREG_CHECK(orStreamGetDevice(handle, &owner));
    TORCH_CHECK(owner == device, "the stream belongs to device openreg:", owner,
                ", but was passed as a stream on openreg:", static_cast<int>(device));
  }
  if (current_streams == nullptr) {
    if (handle == nullptr) {
      return previous;
    }
    static thread_local const CurrentStreamsOwner owner;
    if (current_streams == nullptr) {
      return previous;  // the thread is exiting, and `owner` was destroyed
    }
  }
  (*current_streams)[static_cast<size_t>(device)] = handle;
  return previous;
}

bool is_capturing(orStream_t stream) {
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  OPENREG_CHECK(orStreamGetCaptureInfo(stream, &status, nullptr));
  return status != orStreamCaptureStatusNone;
}

void synchronize_stream(orStream_t stream) {
  wait_for(stream, [stream] { return orStreamSynchronize(stream); });
}

c10::Stream pooled_stream(c10::DeviceIndex device, int priority) {
  static std::array<std::array<Pool, kMaxPriorities>, OPENREG_MAX_DEVICES> pools;
  const c10::DeviceIndex index = resolve_device(device);
  int least = 0;
  int greatest = 0;
  OPENREG_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
  const int cut = std::clamp(priority, std::max(greatest, least - kMaxPriorities + 1), least);
  Pool& pool = pools[static_cast<size_t>(index)][static_cast<size_t>(least - cut)];
  initialize();
  return wrap(pool.take(index, cut), index);
}

c10::Stream external_stream(orStream_t handle, c10::DeviceIndex device) {
  int owner = 0;
  OPENREG_CHECK(orStreamGetDevice(handle, &owner));
  const c10::DeviceIndex index = resolve_device(device);
  TORCH_CHECK(owner == index, "the stream belongs to device openreg:", owner,
              ", but was passed as a stream on openreg:", static_cast<int>(index));
  return wrap(handle, index);
}

}  // namespace openreg
