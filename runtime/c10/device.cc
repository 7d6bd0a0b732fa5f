// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/device.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/error.h"
#include "runtime/c10/initialization.h"

namespace openreg {
namespace {

std::atomic<bool> initialized{false};

// Returns the actions for the first use. A function-local static is necessary, because static
// initializers in other libraries append to the vector.
std::vector<void (*)()>& initial_actions() {
  static std::vector<void (*)()> actions;
  return actions;
}

}  // namespace

c10::DeviceIndex device_count() noexcept {
  int count = 0;
  if (orGetDeviceCount(&count) != orSuccess) {
    return 0;
  }
  return static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex current_device() {
  int device = 0;
  OPENREG_CHECK(orGetDevice(&device));
  return static_cast<c10::DeviceIndex>(device);
}

void set_device(c10::DeviceIndex device) { OPENREG_CHECK(orSetDevice(device)); }

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = current_device();
  if (device >= 0 && device != previous) {
    set_device(device);
  }
  return previous;
}

c10::DeviceIndex resolve_device(int64_t device) {
  if (device == -1) {
    return current_device();
  }
  const c10::DeviceIndex count = device_count();
  TORCH_CHECK(device >= 0 && device < count, "The device index is out of range. It must be in [0, ",
              static_cast<int>(count), "), but got ", device,
              ". (OPENREG_DEVICE_COUNT sets the number of devices)");
  return static_cast<c10::DeviceIndex>(device);
}

void synchronize_device(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve_device(device);
  const DeviceScope scope(index);
  wait_for(index, &orDeviceSynchronize);
}

void initialize() {
  if (initialized.load(std::memory_order_acquire)) {
    if (in_forked_child()) {
      throw_error(orErrorForked);
    }
    return;
  }
  OPENREG_CHECK(orInit());
  static std::once_flag once;
  std::call_once(once, [] {
    for (void (*const action)() : initial_actions()) {
      action();
    }
  });
  initialized.store(true, std::memory_order_release);
}

void at_initialization(void (*action)()) { initial_actions().push_back(action); }

bool is_initialized() noexcept {
  return initialized.load(std::memory_order_acquire) && !in_forked_child();
}

bool in_forked_child() noexcept {
  // Query the driver without initializing it. The driver rejects this query in a forked child.
  int device = 0;
  return orGetDevice(&device) == orErrorForked;
}

}  // namespace openreg
