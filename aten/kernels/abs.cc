// SPDX-License-Identifier: BSD-3-Clause
//
// abs, implemented through torch's DispatchStub. The operator is torch's device-independent
// function, which checks the arguments, allocates the output and builds the TensorIterator. The
// device provides only the loop (docs/custom_operators.md). torch implements abs and abs_ by
// calling abs.out. Any thread may call these operators.
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

// Launches the loop. `iter` iterates over tensors of one dtype on one device; the output comes
// first. `iter` is on the caller's stack, so the kernel builds its own iterator.
void abs_kernel(at::TensorIteratorBase& iter) {
  const c10::DeviceIndex device = iter.device(0).index();
  launch_kernel({"aten::abs", iter.numel()}, device, [&](AliasPool& aliases) {
    at::Tensor out = aliases.alias(iter.tensor(0));
    const bool is_bool = iter.dtype() == c10::kBool;  // accelerators accept bool; the CPU does not
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
