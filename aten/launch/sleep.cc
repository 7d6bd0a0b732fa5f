// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/sleep.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <thread>

#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {

void launch_sleep(int64_t nanoseconds) {
  TORCH_CHECK_VALUE(nanoseconds >= 0, "openreg: cannot sleep for ", nanoseconds,
                    " ns: expected a duration >= 0");
  initialize();
  const orKernelFunction_t sleep = [](void* argument) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(*static_cast<const int64_t*>(argument)));
    return orSuccess;
  };
  const orLaunchAttributes attributes{"openreg::sleep", 0, 0};
  OPENREG_CHECK(orLaunchKernel(current_native_stream(current_device()), sleep, &nanoseconds,
                               sizeof(nanoseconds), &attributes));
}

}  // namespace openreg
