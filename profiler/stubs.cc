// SPDX-License-Identifier: BSD-3-Clause
//
// Makes the device available in those profilers of torch that do not use Kineto
// (autograd.profiler.profile(use_device=...) and use_kineto=False). To measure an operator, they
// record an event on its stream before it and after it. Any thread may call these functions.
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <functional>
#include <memory>

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

class Stubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  bool enabled() const override { return true; }

  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    const c10::DeviceIndex current = current_device();
    if (device != nullptr) {
      *device = current;
    }
    if (orInKernel() != 0) {
      return;  // a kernel cannot create events, and belongs to an operator that is measured anyway
    }
    orEvent_t made = nullptr;
    OPENREG_CHECK(orEventCreateWithFlags(&made, orEventEnableTiming));
    event->reset(made, [](void* old) { (void)orEventDestroy(static_cast<orEvent_t>(old)); });
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    OPENREG_CHECK(orEventRecord(made, current_native_stream(current)));
  }

  // Returns the time between two events in microseconds. If no time is available, because the
  // region changed the device or a kernel failed, returns -1, which torch omits. An exception would
  // discard all other times, too.
  float elapsed(const ProfilerVoidEventStub* first,
                const ProfilerVoidEventStub* second) const override {
    const auto begin = static_cast<orEvent_t>(first->get());
    const auto end = static_cast<orEvent_t>(second->get());
    if (begin == nullptr || end == nullptr) {
      return -1;
    }
    float milliseconds = 0;
    for (const orError_t error : {orEventSynchronize(begin), orEventSynchronize(end),
                                  orEventElapsedTime(&milliseconds, begin, end)}) {
      if (error != orSuccess) {
        TORCH_WARN_ONCE(
            "torch.autograd.profiler cannot measure the device time of an operator on openreg: ",
            orGetLastErrorDetail());
        return -1;
      }
    }
    return milliseconds * 1000;
  }

  // These functions do nothing, because no tool for this device displays marks and ranges.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

  void onEachDevice(std::function<void(int)> run) const override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      const DeviceScope scope(device);
      run(device);
    }
  }

  void synchronize() const override { OPENREG_CHECK(orDeviceSynchronize()); }
};

const bool registered = [] {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace
}  // namespace openreg
