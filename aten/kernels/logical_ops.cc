// SPDX-License-Identifier: BSD-3-Clause
//
// Logical operators. They have device kernels because programs use them for masks whose sizes
// change with each call. torch implements the functional and in-place variants by calling the out=
// variants in this file. Any thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/logical_and_cpu_dispatch.h>
#include <ATen/ops/logical_not_cpu_dispatch.h>
#include <ATen/ops/logical_or_cpu_dispatch.h>
#include <ATen/ops/logical_xor_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/launch/cpu_kernel.h"
#include "aten/structured/structured.h"

namespace openreg {
namespace {

using OutputMeta = StructuredMeta<at::TensorIteratorBase, 1, OutputKind::kOut>;
using Binary = at::Tensor& (*)(const at::Tensor&, const at::Tensor&, at::Tensor&);

template <Binary kFunction>
at::Tensor& launch_binary(const char* name, const at::Tensor& self, const at::Tensor& other,
                          at::Tensor& out) {
  Operands operands;
  operands.add(self);
  operands.add(other);
  operands.add_device(out);
  OutputMeta meta(operands.device());
  meta.give_outputs(out);
  meta.build_comparison_op(out, self, other);
  if (out.numel() > 0) {
    launch_cpu({name, out.numel()}, operands.device(), kFunction, self, other, out);
  }
  return out;
}

at::Tensor& logical_and_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return launch_binary<&at::cpu::logical_and_outf>("aten::logical_and", self, other, out);
}

at::Tensor& logical_or_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return launch_binary<&at::cpu::logical_or_outf>("aten::logical_or", self, other, out);
}

at::Tensor& logical_xor_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return launch_binary<&at::cpu::logical_xor_outf>("aten::logical_xor", self, other, out);
}

at::Tensor& logical_not_out(const at::Tensor& self, at::Tensor& out) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(out);
  OutputMeta meta(operands.device());
  meta.give_outputs(out);
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).add_output(out).add_const_input(self);
  meta.build(config);
  if (out.numel() > 0) {
    launch_cpu({"aten::logical_not", out.numel()}, operands.device(), &at::cpu::logical_not_outf,
               self, out);
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("logical_and.out", TORCH_FN(logical_and_out));
  library.impl("logical_or.out", TORCH_FN(logical_or_out));
  library.impl("logical_xor.out", TORCH_FN(logical_xor_out));
  library.impl("logical_not.out", TORCH_FN(logical_not_out));
}

}  // namespace openreg
