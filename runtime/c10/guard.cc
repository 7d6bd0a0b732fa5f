// SPDX-License-Identifier: BSD-3-Clause
//
// The device guard: the implementation of torch.Stream, torch.Event, torch.accelerator and every
// c10::DeviceGuard. It has no state. torch keeps one instance for the lifetime of the process. Any
// thread may call it.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/error.h"
#include "runtime/c10/event.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

orEvent_t native_event(void* event) { return static_cast<orEvent_t>(event); }

// A driver event, or null. If it is not null, the next record of an event without a driver event
// uses it instead of creating one.
thread_local orEvent_t adopted = nullptr;

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kOpenRegType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    TORCH_INTERNAL_ASSERT(device.type() == kOpenRegType);
    return {kOpenRegType, exchange_device(device.index())};
  }

  c10::Device getDevice() const override { return {kOpenRegType, current_device()}; }

  void setDevice(c10::Device device) const override {
    TORCH_INTERNAL_ASSERT(device.type() == kOpenRegType);
    (void)exchange_device(device.index());
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) {
      (void)orSetDevice(device.index());
    }
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override {
    int least = 0;
    int greatest = 0;
    OPENREG_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
    return pooled_stream(device.index(), is_high_priority ? greatest : least);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return pooled_stream(device.index(), priority);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }

  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return native_stream(stream);
  }

  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) {
      if (C10_UNLIKELY(stream_watchers.any())) {
        diagnostic_hooks().on_event_destroy(native_event(event));
      }
      (void)orEventDestroy(native_event(event));
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ",
                static_cast<int>(device), " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()), ".");
    const DeviceScope scope(stream.device_index());
    const orStream_t native = native_stream(stream);
    auto created = native_event(*event);
    if (created == nullptr && adopted != nullptr) {
      *event = std::exchange(adopted, nullptr);
      return;
    }
    if (created != nullptr) {
      OPENREG_CHECK(orEventRecord(created, native));
    } else {
      const bool timed = flag == c10::EventFlag::BACKEND_DEFAULT;
      const orError_t error = create_recorded_event(
          &created, native, timed ? orEventEnableTiming : orEventDisableTiming);
      if (!timed && !driver_supports(error)) {
        // The host waits, so that the event, which stays null, counts as complete. torch's autograd
        // engine orders the streams of two devices with such events.
        synchronize_stream(native);
        return;
      }
      OPENREG_CHECK(error);
      *event = created;
    }
    if (C10_UNLIKELY(stream_watchers.any())) {
      diagnostic_hooks().on_event_record(created, native);
    }
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      OPENREG_CHECK(orStreamWaitEvent(native_stream(stream), native_event(event), 0));
      if (C10_UNLIKELY(stream_watchers.any())) {
        diagnostic_hooks().on_stream_wait(native_stream(stream), native_event(event));
      }
    }
  }

  bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    const orError_t state = orEventQuery(native_event(event));
    if (state == orErrorNotReady) {
      return false;
    }
    OPENREG_CHECK(state);
    if (C10_UNLIKELY(stream_watchers.any())) {
      diagnostic_hooks().on_done(native_event(event));
    }
    return true;
  }

  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    (void)resolve_device(device.index());
    return {};  // all dtypes are supported, because CPU kernels run on the device
  }

  bool queryStream(const c10::Stream& stream) const override {
    const orError_t state = orStreamQuery(native_stream(stream));
    if (state == orErrorNotReady) {
      return false;
    }
    OPENREG_CHECK(state);
    if (C10_UNLIKELY(stream_watchers.any())) {
      diagnostic_hooks().on_done(native_stream(stream));
    }
    return true;
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    openreg::synchronize_stream(native_stream(stream));
  }

  bool isStreamCapturing(const c10::Stream& stream) const override {
    return is_capturing(native_stream(stream));
  }

  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      wait_for(native_event(event), [event] { return orEventSynchronize(native_event(event)); });
    }
  }

  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator()->recordStream(data, stream);
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex device) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    const DeviceScope scope(resolve_device(device));
    float milliseconds = 0;
    const orError_t error =
        orEventElapsedTime(&milliseconds, native_event(start), native_event(end));
    TORCH_CHECK(
        error != orErrorNotReady,
        "Both events must be completed before calculating elapsed time: synchronize first.");
    OPENREG_CHECK(error);
    return milliseconds;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

}  // namespace

void adopt_event(c10::Event& event, orEvent_t native, c10::DeviceIndex device) {
  adopted = native;
  try {
    event.record(default_stream(device));
  } catch (...) {
    (void)std::exchange(adopted, nullptr);
    (void)orEventDestroy(native);
    throw;
  }
}

}  // namespace openreg
