// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for devices: count, current device, properties and synchronization.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/device/activity.h"
#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/capture.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/event.h"
#include "runtime/device/graph.h"
#include "runtime/device/imported_memory.h"
#include "runtime/device/kernel_error.h"
#include "runtime/device/openreg.h"
#include "runtime/device/process.h"
#include "runtime/device/stream_registry.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// Waits for the device and returns the earliest kernel error.
orError_t Synchronize(const char* function, int device, std::unique_ptr<KernelError>* error) {
  if (!Streams::Get().WaitIdle(device)) {
    return Fail(orErrorShutdown, "%s: queued commands were dropped because the process is exiting",
                function);
  }
  *error = Streams::Get().TakeError(device);
  return orSuccess;
}

// Returns the size of the CPU's last-level cache, which kernels use, or 0 if it is unknown.
size_t LastCacheSize() {
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long size = sysconf(level); size > 0) {
      return static_cast<size_t>(size);
    }
  }
  return 0;
}

// Derives the UUID from the operating system's boot id and the device's index.
void MakeUuid(int device, uint8_t (&uuid)[16]) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  std::erase(text, '-');
  for (size_t i = 0; i < 16 && 2 * i + 1 < text.size(); ++i) {
    unsigned byte = 0;
    (void)std::sscanf(text.c_str() + 2 * i, "%2x", &byte);
    uuid[i] = static_cast<uint8_t>(byte);
  }
  uuid[15] ^= static_cast<uint8_t>(device + 1);
}

}  // namespace

extern "C" {

OPENREG_API orError_t orGetDeviceCount(int* count) {
  if (count == nullptr) {
    return Fail(orErrorInvalidValue, "orGetDeviceCount: count is null: pass the address of an int");
  }
  *count = 0;
  const Environment* environment;
  if (const orError_t error = GetEnvironment(&environment); error != orSuccess) {
    return error;
  }
  *count = environment->device_count;
  return orSuccess;
}

OPENREG_API orError_t orGetDevice(int* device) {
  if (device == nullptr) {
    return Fail(orErrorInvalidValue, "orGetDevice: device is null: pass the address of an int");
  }
  if (InForkedChild()) [[unlikely]] {
    return Refuse("orGetDevice", /*only_reads=*/true);
  }
  *device = thread_state.device;
  return orSuccess;
}

OPENREG_API orError_t orSetDevice(int device) {
  if (InForkedChild()) [[unlikely]] {
    return Refuse("orSetDevice", /*only_reads=*/true);
  }
  // The device is usually already current, because guards rarely change the device.
  if (device != thread_state.device) {
    if (const orError_t error = CheckDevice("orSetDevice", device); error != orSuccess) {
      return error;
    }
    thread_state.device = device;
  }
  return orSuccess;
}

OPENREG_API orError_t orGetDeviceProperties(orDeviceProperties* properties, int device) {
  if (properties == nullptr) {
    return Fail(
        orErrorInvalidValue,
        "orGetDeviceProperties: properties is null: pass the address of an orDeviceProperties");
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
  properties->allocation_granularity = kPage;
  properties->major = OPENREG_VERSION / 10000;
  properties->minor = OPENREG_VERSION / 100 % 100;
  properties->multi_processor_count = CoreCount();
  properties->max_threads_per_multi_processor = 1;
  properties->warp_size = 1;
  properties->l2_cache_size = LastCacheSize();
  MakeUuid(device, properties->uuid);
  return orSuccess;
}

OPENREG_API orError_t orDeviceSynchronize(void) {
  if (const orError_t error = EnterDevice("orDeviceSynchronize"); error != orSuccess) {
    return error;
  }
  if (thread_state.capture_mode != orStreamCaptureModeRelaxed) {
    if (const orError_t error = CheckDeviceUncaptured("orDeviceSynchronize", thread_state.device);
        error != orSuccess) {
      return error;
    }
  }
  CallActivity call("orDeviceSynchronize", CallActivity::kWaits);
  std::unique_ptr<KernelError> failed;
  if (const orError_t error = Synchronize("orDeviceSynchronize", thread_state.device, &failed);
      error != orSuccess) {
    return error;
  }
  return failed ? Fail(failed.release()) : orSuccess;
}

OPENREG_API orError_t orDeviceReset(void) {
  if (const orError_t error = EnterDevice("orDeviceReset"); error != orSuccess) {
    return error;
  }
  const int device = thread_state.device;
  if (const orError_t error = CheckDeviceUncaptured("orDeviceReset", device); error != orSuccess) {
    return error;
  }
  std::unique_ptr<KernelError> failed;
  do {
    failed.reset();
    if (const orError_t error = Synchronize("orDeviceReset", device, &failed); error != orSuccess) {
      return error;
    }
  } while (failed);
  Graphs::Get().DestroyAll(device);
  Streams::Get().DestroyAll(device);
  Events::Get().DestroyAll(device);
  CloseImports(device);
  Allocations::Get().FreeAll(device);
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
