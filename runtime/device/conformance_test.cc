// SPDX-License-Identifier: BSD-3-Clause
//
// Defines TestedDriver() (cts/driver.h), which describes the emulation to the conformance suite.
#include <algorithm>

#include "runtime/device/cts/driver.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::cts {
namespace {

struct Fill {
  void* memory;
  size_t count;
  uint32_t value;
};

orError_t LaunchFill(orStream_t stream, void* memory, size_t count, uint32_t value) {
  const Fill fill{memory, count, value};
  return orLaunchKernel(
      stream,
      [](void* arguments) {
        const auto* fill = static_cast<const Fill*>(arguments);
        void* view = nullptr;
        const orError_t error = orGetKernelPointer(&view, fill->memory);
        if (error == orSuccess) {
          std::fill_n(static_cast<uint32_t*>(view), fill->count, fill->value);
        }
        return error;
      },
      &fill, sizeof(fill), nullptr);
}

orError_t LaunchFailing(orStream_t stream) {
  return orLaunchKernel(
      stream,
      [](void*) { return orKernelFail(orErrorLaunchFailure, "on purpose", nullptr, nullptr); },
      nullptr, 0, nullptr);
}

}  // namespace

const Driver& TestedDriver() {
  static const Driver driver{kTier2 | kGraphs | kSharing | kActivity, LaunchFill, LaunchFailing};
  return driver;
}

}  // namespace openreg::cts
