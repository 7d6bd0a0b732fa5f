// SPDX-License-Identifier: BSD-3-Clause
//
// The gradient of an embedding. The embedding itself is an index_select (where_index_select.cc).
// Any thread may call these operators.
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/embedding_dense_backward_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/launch/launch.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

at::Tensor embedding_dense_backward(const at::Tensor& grad_output, const at::Tensor& indices,
                                    int64_t rows, int64_t padding_index, bool scale_by_frequency) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(indices);
  const at::TensorArg indices_argument(indices, "indices", 2);
  at::checkScalarTypes("embedding_backward", indices_argument, {c10::kLong, c10::kInt});
  TORCH_CHECK(
      grad_output.dim() > 0 && grad_output.numel() == indices.numel() * grad_output.size(-1),
      "openreg: embedding_dense_backward: grad_output of size ", grad_output.sizes(),
      " does not have one row for each of the ", indices.numel(), " indices");
  at::Tensor grad_weight =
      empty_on(operands.device(), {rows, grad_output.size(-1)}, grad_output.scalar_type());
  launch_kernel({"aten::embedding_dense_backward", grad_weight.numel() + 2 * grad_output.numel()},
                operands.device(), [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output),
                          indices = aliases.alias(indices), rows, padding_index, scale_by_frequency,
                          grad_weight = aliases.alias(grad_weight)] {
                    store(at::cpu::embedding_dense_backward(grad_output, indices, rows,
                                                            padding_index, scale_by_frequency),
                          grad_weight);
                  };
                });
  return grad_weight;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
}

}  // namespace openreg
