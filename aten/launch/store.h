// SPDX-License-Identifier: BSD-3-Clause
//
// Results of kernels that torch has in functional form only: they come in memory of the CPU and are
// copied to where the device wants them, in the same launch.
// Threads: the one that runs the kernel.
#ifndef ATEN_LAUNCH_STORE_H_
#define ATEN_LAUNCH_STORE_H_

#include <ATen/core/Tensor.h>

namespace openreg {

// Copies `result` into `output`, an alias. An output that nobody asked for is undefined; so is a
// result that the kernel did not compute, for which the caller must not have promised an output.
inline void store(const at::Tensor& result, const at::Tensor& output) {
  if (output.defined() && output.numel() > 0) {
    output.copy_(result);
  }
}

}  // namespace openreg

#endif  // ATEN_LAUNCH_STORE_H_
