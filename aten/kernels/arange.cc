// SPDX-License-Identifier: BSD-3-Clause
//
// arange. It has a device kernel because many networks call it in every step. Any thread may call
// it.
#include <ATen/core/Tensor.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/ops/arange_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/launch/cpu_kernel.h"

namespace openreg {
namespace {

int64_t range_size(c10::ScalarType dtype, const at::Scalar& start, const at::Scalar& end,
                   const at::Scalar& step) {
  // double cannot represent all 64-bit integers.
  return dtype == c10::kLong ? at::native::compute_arange_size<int64_t>(start, end, step)
                             : at::native::compute_arange_size<double>(start, end, step);
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                       at::Tensor& out) {
  Operands operands;
  operands.add_device(out);
  const int64_t size = range_size(out.scalar_type(), start, end, step);
  if (out.numel() != size) {
    if (out.numel() > 0) {
      TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ",
                 out.numel(), " which does not match the computed number of elements ", size,
                 ". Note that this may occur as a result of rounding error. The out tensor will be "
                 "resized to a tensor of shape (",
                 size, ",).");
    }
    out.resize_({size});
  }
  launch_cpu({"aten::arange.start_out", size}, operands.device(), &at::cpu::arange_outf, start, end,
             step, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("arange.start_out", TORCH_FN(arange_out));
}

}  // namespace openreg
