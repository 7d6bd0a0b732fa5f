// SPDX-License-Identifier: BSD-3-Clause
//
// abs, by torch's DispatchStub: the operator is torch's own function for every device, which checks
// the arguments, makes the output and builds the TensorIterator; the device supplies the loop
// (docs/custom_operators.md). abs and abs_ are made of abs.out by torch. Threads: any.
#include <ATen/core/Tensor.h>
#include <ATen/native/Copy.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_native.h>
#include <torch/library.h>

#include "aten/launch/launch.h"

namespace openreg {
namespace {

// `iter` goes over tensors of one dtype on one device, the output first. It lives on the caller's
// stack, so that the kernel gets one of its own.
void abs_kernel(at::TensorIteratorBase& iter) {
  const c10::DeviceIndex device = iter.device(0).index();
  launch_kernel({"aten::abs", iter.numel()}, device, [&](AliasPool& aliases) {
    at::Tensor out = aliases.alias(iter.tensor(0));
    const bool is_bool = iter.dtype() == c10::kBool;  // as on accelerators; the CPU refuses it
    return [loop = at::TensorIterator::unary_op(out, aliases.alias(iter.tensor(1))),
            is_bool]() mutable {
      if (is_bool) {
        at::native::copy_stub(c10::kCPU, loop, /*non_blocking=*/false);
      } else {
        at::native::abs_stub(c10::kCPU, loop);
      }
    };
  });
}

}  // namespace
}  // namespace openreg

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, &openreg::abs_kernel)

}  // namespace at::native

namespace openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("abs.out", TORCH_FN(at::native::abs_out));
}

}  // namespace openreg
