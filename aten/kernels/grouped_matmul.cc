// SPDX-License-Identifier: BSD-3-Clause
//
// _grouped_mm: one matrix product per group of rows or columns, as used by mixtures of experts. The
// ends of the groups are in device memory, and torch's device-independent function would wait for
// them. Here one launch computes all groups without waiting. Rows of the result are aligned to 16
// bytes, as on the CPU and as torch's compiler expects.
//
// As on the CPU, a group that ends before it starts is empty, and a group that ends beyond the last
// row is truncated. Rows of the result that belong to no group are undefined. Any thread may call
// this operator.
#include <ATen/core/Tensor.h>
#include <ATen/native/GroupedMMUtils.h>
#include <torch/library.h>

#include <optional>

#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/structured/arguments.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;

// Returns an upper bound of the cost, assuming that every row of a matrix is a separate group.
int64_t grouped_cost(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  return mat2.numel() + (self.dim() == 2 && mat2.dim() == 2 ? self.numel() * mat2.size(1) / 8
                                                            : matmul_cost(self, out));
}

at::Tensor grouped_mm(const at::Tensor& self, const at::Tensor& mat2, const Optional& offs,
                      const Optional& bias, std::optional<at::ScalarType> out_dtype) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  operands.add_device(offs);
  operands.add_device(bias);
  {
    // Validate aliases instead of device tensors: for devices other than the CPU, torch also checks
    // whether pointers have the alignment that GPUs require.
    AliasPool pool;
    at::native::_grouped_mm_validate_inputs(pool.alias(self), pool.alias(mat2), offs, bias,
                                            out_dtype);
  }
  const at::ScalarType dtype = at::native::_resolve_grouped_mm_out_dtype(self, mat2, out_dtype);
  TORCH_CHECK(self.scalar_type() == mat2.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", self.dtype(),
              " != ", mat2.dtype());
  const at::Tensor out = at::native::create_grouped_gemm_output_tensor(self, mat2, offs, dtype);
  launch_kernel(
      {.name = "aten::_grouped_mm", .cost = grouped_cost(self, mat2, out), .check = Check::kNever},
      operands.device(), [&](AliasPool& aliases) {
        return [self = aliases.alias(self), mat2 = aliases.alias(mat2),
                offs = Owned<Optional>(aliases, offs), out = aliases.alias(out)] {
          at::native::_grouped_mm_fallback(self, mat2, offs, std::nullopt, std::nullopt, out);
        };
      });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_grouped_mm", TORCH_FN(grouped_mm));
}

}  // namespace openreg
