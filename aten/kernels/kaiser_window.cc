// SPDX-License-Identifier: BSD-3-Clause
//
// kaiser_window, implemented through torch's DispatchStub. It is the only window function that
// torch does not implement with other operators. Any thread may call it.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/UnaryOps.h>

#include "aten/launch/launch.h"

namespace openreg {
namespace {

constexpr int64_t kCost = 64;  // elementary operations per element (two Bessel functions)

// Launches the loop. `iter` iterates over the window and the numbers from 0 to `length`.
void kaiser_window_kernel(at::TensorIteratorBase& iter, int64_t length, double beta) {
  const c10::DeviceIndex device = iter.device(0).index();
  launch_kernel({"aten::kaiser_window", iter.numel() * kCost}, device, [&](AliasPool& aliases) {
    at::Tensor window = aliases.alias(iter.tensor(0));
    at::Tensor numbers = aliases.alias(iter.tensor(1));
    return [loop = at::TensorIterator::unary_op(window, numbers), length, beta]() mutable {
      at::native::kaiser_window_stub(c10::kCPU, loop, length, beta);
    };
  });
}

}  // namespace
}  // namespace openreg

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &openreg::kaiser_window_kernel)

}  // namespace at::native
