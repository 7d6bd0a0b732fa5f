// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/sleep.h"

#include <c10/util/Exception.h>

#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/minimal/openreg_minimal.h"

namespace openreg {

void launch_sleep(int64_t nanoseconds) {
  TORCH_CHECK_VALUE(nanoseconds >= 0, "openreg: cannot sleep for ", nanoseconds,
                    " ns: expected a duration >= 0");
  initialize();
  orKernel_t kernel = nullptr;
  OPENREG_CHECK(orGetKernel(&kernel, "sleep"));
  orKernelArguments arguments{};
  arguments.element_size = 1;
  arguments.scalar = static_cast<double>(nanoseconds);
  OPENREG_CHECK(orLaunchKernel(current_native_stream(current_device()), kernel, &arguments,
                               sizeof(arguments)));
}

}  // namespace openreg
