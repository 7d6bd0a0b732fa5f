// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix products with int8 weights. _int_mm is the integer product of dynamically quantized
// layers; _weight_int8pack_mm is for weight-only quantization. They use CPU kernels
// (docs/quantization.md).
//
// Arguments are checked at the call. The messages are torch's, except that the name of the CPU
// function differs. Any thread may call these operators.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_int_mm_cpu_dispatch.h>
#include <ATen/ops/_weight_int8pack_mm_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/kernels/weight_blocks.h"
#include "aten/launch/cpu_kernel.h"
#include "aten/launch/launch.h"
#include "aten/launch/store.h"
#include "aten/structured/arguments.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

Operands check_int_mm(const at::Tensor& self, const at::Tensor& mat2) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  TORCH_CHECK(self.dim() == 2, "_int_mm: Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "_int_mm: Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0),
              "_int_mm: self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
              mat2.size(0));
  TORCH_CHECK(self.scalar_type() == at::kChar || self.scalar_type() == at::kByte,
              "_int_mm: Expected self dtype to be int8 or uint8 but got ", self.dtype());
  TORCH_CHECK(mat2.scalar_type() == at::kChar,
              "_int_mm: Expected mat2 dtype to be of type int8 but got ", mat2.dtype());
  return operands;
}

// Returns the matrix with the strides that the CPU kernel expects. The kernel treats any matrix
// with stride 1 in the first dimension as transposed. A single row can have such strides although
// it is contiguous; a transposed column is an example. In this case, the kernel writes no result
// and reports no error.
at::Tensor with_row_strides(const at::Tensor& matrix) {
  return matrix.size(0) == 1 && matrix.stride(1) == 1
             ? matrix.as_strided(matrix.sizes(), {matrix.size(1), 1})
             : matrix;
}

void launch_int_mm(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  if (out.numel() > 0) {
    launch_cpu({"aten::_int_mm", matmul_cost(self, mat2)}, out.get_device(), &at::cpu::_int_mm_outf,
               with_row_strides(self), with_row_strides(mat2), out);
  }
}

at::Tensor int_mm(const at::Tensor& self, const at::Tensor& mat2) {
  const Operands operands = check_int_mm(self, mat2);
  at::Tensor out = empty_on(operands.device(), {self.size(0), mat2.size(1)}, at::kInt);
  launch_int_mm(self, mat2, out);
  return out;
}

at::Tensor& int_mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  Operands operands = check_int_mm(self, mat2);
  operands.add_device(out);
  TORCH_CHECK(out.scalar_type() == at::kInt,
              "_int_mm: Expected result dtype to be of type kInt but got ", out.dtype());
  TORCH_CHECK(out.dim() == 2, "_int_mm: Expected result to be of dimension 2 but got ", out.dim());
  TORCH_CHECK(out.size(0) == self.size(0), "_int_mm: Expected result.size(0) to be ", self.size(0),
              " but got ", out.size(0));
  TORCH_CHECK(out.size(1) == mat2.size(1), "_int_mm: Expected result.size(1) to be ", mat2.size(1),
              " but got ", out.size(1));
  TORCH_CHECK(out.is_contiguous(), "_int_mm: Expected result to be contiguous.");
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mat2);
  launch_int_mm(self, mat2, out);
  return out;
}

// Limits for the CPU kernels for reduced dtypes. These kernels read whole vectors of 32 columns,
// even past the last row, and repeat the work for each row of the input. The CPU kernel for float32
// is never used, because it is not vectorized.
constexpr int64_t kVector = 32;
constexpr int64_t kFewRows = 16;

at::Tensor multiply_int8(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scales) {
  if (self.scalar_type() != at::kFloat && self.size(1) % kVector == 0 && self.size(0) <= kFewRows) {
    return at::cpu::_weight_int8pack_mm(self, mat2, scales);
  }
  return multiply_by_blocks(self, mat2.size(0),
                            [&](int64_t first, const at::Tensor& block) {
                              block.copy_(mat2.narrow(0, first, block.size(0)));
                            })
      .mul_(scales);
}

at::Tensor weight_int8pack_mm(const at::Tensor& self, const at::Tensor& mat2,
                              const at::Tensor& scales) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  operands.add_device(scales);
  const at::ScalarType dtype = self.scalar_type();
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
              "_weight_int8pack_mm : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(self.dim() == 2, "_weight_int8pack_mm : expect A to be 2D tensor.");
  TORCH_CHECK(self.stride(1) == 1,
              "_weight_int8pack_mm : A must be contiguous on the last dimension.");
  TORCH_CHECK(mat2.scalar_type() == at::kChar, "_weight_int8pack_mm : expect B to be int8 tensor.");
  TORCH_CHECK(mat2.is_contiguous(), "_weight_int8pack_mm : expect B to be contiguous.");
  TORCH_CHECK(mat2.dim() == 2 && mat2.size(1) == self.size(1),
              "_weight_int8pack_mm : expect B.size(1) == ", self.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == mat2.size(0),
              "_weight_int8pack_mm : expect scales to be 1d tensor with size ", mat2.size(0));
  TORCH_CHECK(scales.scalar_type() == dtype, "expected scalar type ", dtype, " but found ",
              scales.scalar_type());
  at::Tensor out = empty_on(operands.device(), {self.size(0), mat2.size(0)}, dtype);
  if (out.numel() > 0) {
    launch_kernel({"aten::_weight_int8pack_mm", matmul_cost(self, mat2.t())}, operands.device(),
                  [&](AliasPool& aliases) {
                    return [self = aliases.alias(self), mat2 = aliases.alias(mat2),
                            scales = aliases.alias(scales), out = aliases.alias(out)] {
                      store(multiply_int8(self, mat2, scales), out);
                    };
                  });
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_int_mm", TORCH_FN(int_mm));
  library.impl("_int_mm.out", TORCH_FN(int_mm_out));
  library.impl("_weight_int8pack_mm", TORCH_FN(weight_int8pack_mm));
}

}  // namespace openreg
