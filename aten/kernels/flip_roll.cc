// SPDX-License-Identifier: BSD-3-Clause
//
// flip and roll, which reorder elements. Any thread may call these operators.
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip_cpu_dispatch.h>
#include <ATen/ops/roll_native.h>
#include <torch/library.h>

#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/launch/store.h"

namespace openreg {
namespace {

at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
  Operands operands;
  operands.add_device(self);
  (void)at::dim_list_to_bitset(dims, static_cast<size_t>(self.dim()));  // checks the dimensions
  at::Tensor out = at::empty_like(self);
  launch_kernel({"aten::flip", self.numel() * 2}, operands.device(), [&](AliasPool& aliases) {
    return [self = aliases.alias(self), dims = at::DimVector(dims), out = aliases.alias(out)] {
      store(at::cpu::flip(self, dims), out);
    };
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("flip", TORCH_FN(flip));
  library.impl("roll", TORCH_FN(at::native::roll));  // calls cat, so it works on any device
}

}  // namespace openreg
