// SPDX-License-Identifier: BSD-3-Clause
//
// Stores the results of kernels that torch has only in functional form. These return CPU memory,
// which is copied to the output in the same launch. Called on the thread that runs the kernel.
#ifndef ATEN_LAUNCH_STORE_H_
#define ATEN_LAUNCH_STORE_H_

#include <ATen/core/Tensor.h>

namespace openreg {

// Copies `result` into `output`, an alias. An undefined output was not requested, so nothing is
// copied. An undefined result was not computed by the kernel; in this case the caller must not have
// created an output.
inline void store(const at::Tensor& result, const at::Tensor& output) {
  if (output.defined() && output.numel() > 0) {
    output.copy_(result);
  }
}

}  // namespace openreg

#endif  // ATEN_LAUNCH_STORE_H_
