// SPDX-License-Identifier: BSD-3-Clause
//
// Defines TestedDriver(), which describes the minimal driver to the conformance suite.
#include "runtime/device/cts/driver.h"
#include "runtime/minimal/openreg_minimal.h"

namespace openreg::cts {
namespace {

orError_t LaunchFill(orStream_t stream, void* memory, size_t count, uint32_t value) {
  orKernel_t fill = nullptr;
  if (const orError_t error = orGetKernel(&fill, "fill"); error != orSuccess) {
    return error;
  }
  orKernelArguments arguments{};
  arguments.rank = arguments.kept = 1;
  arguments.element_size = sizeof(value);
  arguments.sizes[0] = static_cast<int64_t>(count);
  arguments.out.data = memory;
  arguments.out.strides[0] = 1;
  __builtin_memcpy(arguments.bytes, &value, sizeof(value));
  return orLaunchKernel(stream, fill, &arguments, sizeof(arguments));
}

// The launch succeeds, because the address is checked only when the kernel runs.
orError_t LaunchFailing(orStream_t stream) { return LaunchFill(stream, nullptr, 1, 0); }

}  // namespace

const Driver& TestedDriver() {
  static const Driver driver{kTier2, LaunchFill, LaunchFailing};
  return driver;
}

}  // namespace openreg::cts
