// SPDX-License-Identifier: BSD-3-Clause
//
// addr, implemented through torch's DispatchStub like abs.cc. Without this kernel, torch would use
// its composite implementation. That implementation rounds differently from the CPU's, and its
// addr_ may change the shape of the tensor. torch implements addr_ by calling addr.out. Any thread
// may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/LinearAlgebra.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/addr_native.h>
#include <torch/library.h>

#include "aten/launch/cpu_kernel.h"

namespace openreg {
namespace {

constexpr int64_t kCost = 2;  // elementary operations per element

// Launches the CPU operator. `iter` iterates over the output, the matrix expanded to the output's
// shape, a column and a row. Their dtypes may differ, because TensorIterator itself converts only
// CPU tensors.
void addr_kernel(at::TensorIterator& iter, const at::Scalar& beta, const at::Scalar& alpha) {
  const c10::DeviceIndex device = iter.device(0).index();
  launch_cpu({"aten::addr", iter.numel() * kCost}, device, &at::native::addr_out, iter.tensor(1),
             iter.tensor(2).squeeze(1), iter.tensor(3), beta, alpha, iter.tensor(0));
}

}  // namespace
}  // namespace openreg

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(addr_stub, &openreg::addr_kernel)

}  // namespace at::native

namespace openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("addr", TORCH_FN(at::native::addr));
  library.impl("addr.out", TORCH_FN(at::native::addr_out));
}

}  // namespace openreg
