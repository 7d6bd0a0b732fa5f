// SPDX-License-Identifier: BSD-3-Clause
//
// Launches generated kernels from generated C++. These functions are declared in
// compile/torch_openreg_compile/kernel_call.h. They throw exceptions, like all functions that
// generated C++ calls.
#include <cstddef>
#include <cstdint>

#include "aten/launch/compiled_kernel.h"
#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/device/openreg_emulation.h"

namespace {

const orAddressWindow& address_window() {
  static const orAddressWindow window = [] {
    openreg::initialize();
    orAddressWindow found{};
    OPENREG_CHECK(orGetAddressWindow(&found));
    return found;
  }();
  return window;
}

}  // namespace

// Stores the kernel address of `data` in `word`. Returns false if `data` is in host memory.
extern "C" OPENREG_API bool openreg_kernel_address(const void* data, uint64_t* word) {
  const orAddressWindow& window = address_window();
  const auto address = reinterpret_cast<uintptr_t>(data);
  *word = address + static_cast<uintptr_t>(window.kernel_offset);
  return address - window.base < window.size;
}

// Queues a generated kernel through openreg::launch_compiled().
extern "C" OPENREG_API void openreg_kernel_launch(const char* name, bool parallel, bool pointwise,
                                                  int64_t device, int64_t cost,
                                                  void (*run)(void* arguments),
                                                  const void* arguments, size_t bytes) {
  openreg::launch_compiled({name, parallel, pointwise, run}, static_cast<c10::DeviceIndex>(device),
                           cost, arguments, bytes);
}
