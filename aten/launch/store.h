// SPDX-License-Identifier: BSD-3-Clause
//
// Stores results of kernels that torch has only in functional form: these return CPU memory, which
// is copied to the output in the same launch. Called on the thread that runs the kernel.
#ifndef ATEN_LAUNCH_STORE_H_
#define ATEN_LAUNCH_STORE_H_

#include <ATen/core/Tensor.h>

namespace openreg {

// Copies `result` into `output`, an alias. An output that was not requested is undefined. A result
// that the kernel did not compute is undefined too; the caller must not have created an output for
// it.
inline void store(const at::Tensor& result, const at::Tensor& output) {
  if (output.defined() && output.numel() > 0) {
    output.copy_(result);
  }
}

}  // namespace openreg

#endif  // ATEN_LAUNCH_STORE_H_
