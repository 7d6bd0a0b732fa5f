// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/device.h"

#include <cstdio>
#include <memory>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/event.h"
#include "runtime/device/graph.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
#include "runtime/device/thread.h"

namespace openreg::device {

orError_t CheckDevice(const char* function, int device) {
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  if (device < 0 || device >= environment->device_count) {
    return Fail(orErrorInvalidDevice,
                "%s: device index %d is out of range: %d device%s (OPENREG_DEVICE_COUNT)", function,
                device, environment->device_count, environment->device_count == 1 ? "" : "s");
  }
  return orSuccess;
}

namespace {

// Waits for the device, and returns the earliest error of a kernel.
orError_t Synchronize(const char* function, int device, std::unique_ptr<KernelError>* error) {
  if (!Streams::Get().WaitIdle(device)) {
    return Fail(orErrorShutdown, "%s: queued commands were dropped: the process exits", function);
  }
  *error = Streams::Get().TakeError(device);
  return orSuccess;
}

}  // namespace
}  // namespace openreg::device

using openreg::device::Allocations;
using openreg::device::Captures;
using openreg::device::Capturing;
using openreg::device::CheckDevice;
using openreg::device::EnterDevice;
using openreg::device::EnterQuery;
using openreg::device::Environment;
using openreg::device::Fail;
using openreg::device::GetEnvironment;
using openreg::device::KernelError;
using openreg::device::LeftBehind;
using openreg::device::Refuse;
using openreg::device::thread_state;

orError_t orInit(void) { return EnterQuery("orInit"); }

orError_t orGetDeviceCount(int* count) {
  if (count == nullptr) {
    return Fail(orErrorInvalidValue, "orGetDeviceCount: count is null");
  }
  *count = 0;
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  *count = environment->device_count;
  return orSuccess;
}

orError_t orGetDevice(int* device) {
  if (device == nullptr) {
    return Fail(orErrorInvalidValue, "orGetDevice: device is null");
  }
  if (LeftBehind()) [[unlikely]] {
    return Refuse("orGetDevice", /*only_reads=*/true);
  }
  *device = thread_state.device;
  return orSuccess;
}

orError_t orSetDevice(int device) {
  if (LeftBehind()) [[unlikely]] {
    return Refuse("orSetDevice", /*only_reads=*/true);
  }
  // The common case: a device guard that changes nothing, or goes back to device 0.
  if (device != thread_state.device) {
    if (const orError_t error = CheckDevice("orSetDevice", device); error != orSuccess) {
      return error;
    }
    thread_state.device = device;
  }
  return orSuccess;
}

orError_t orGetDeviceProperties(orDeviceProperties* properties, int device) {
  if (properties == nullptr) {
    return Fail(orErrorInvalidValue, "orGetDeviceProperties: properties is null");
  }
  if (const orError_t error = CheckDevice("orGetDeviceProperties", device); error != orSuccess) {
    return error;
  }
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "OpenReg emulated accelerator");
  properties->total_memory = environment->device_memory;
  properties->allocation_granularity = openreg::device::kPage;
  properties->major = OPENREG_VERSION / 10000;
  properties->minor = OPENREG_VERSION / 100 % 100;
  properties->multi_processor_count = openreg::device::CoreCount();
  return orSuccess;
}

orError_t orDeviceSynchronize(void) {
  if (const orError_t error = EnterDevice("orDeviceSynchronize"); error != orSuccess) {
    return error;
  }
  if (Capturing() && thread_state.capture_mode != orStreamCaptureModeRelaxed) {
    if (const auto refused =
            Captures::Get().RefuseDevice("orDeviceSynchronize", thread_state.device)) {
      return *refused;
    }
  }
  std::unique_ptr<KernelError> failed;
  if (const orError_t error =
          openreg::device::Synchronize("orDeviceSynchronize", thread_state.device, &failed);
      error != orSuccess) {
    return error;
  }
  return failed ? Fail(failed.release()) : orSuccess;
}

orError_t orDeviceReset(void) {
  if (const orError_t error = EnterDevice("orDeviceReset"); error != orSuccess) {
    return error;
  }
  const int device = thread_state.device;
  if (Capturing()) {
    if (const auto refused = Captures::Get().RefuseDevice("orDeviceReset", device)) {
      return *refused;
    }
  }
  std::unique_ptr<KernelError> failed;
  do {
    failed.reset();
    if (const orError_t error = openreg::device::Synchronize("orDeviceReset", device, &failed);
        error != orSuccess) {
      return error;
    }
  } while (failed);
  openreg::device::Graphs::Get().DestroyAll(device);
  openreg::device::Streams::Get().DestroyAll(device);
  openreg::device::Events::Get().DestroyAll(device);
  Allocations::Get().FreeAll(device);
  return orSuccess;
}
