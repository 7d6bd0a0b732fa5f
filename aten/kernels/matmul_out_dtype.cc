// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix products of float16 or bfloat16 operands with float32 results, such as torch.mm(a, b,
// out_dtype=...). The CPU has no kernels for them. Here the operands are first converted to
// float32, so that sums are not rounded to the operands' dtype. As on GPUs, these products are not
// differentiable. Any thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

namespace openreg {
namespace {

// Converts an operand to the result's dtype.
at::Tensor convert(const at::Tensor& operand, at::ScalarType out_dtype) {
  const bool reduced = operand.scalar_type() == at::kHalf || operand.scalar_type() == at::kBFloat16;
  TORCH_CHECK(operand.scalar_type() == out_dtype || (reduced && out_dtype == at::kFloat),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  return operand.to(out_dtype);
}

// Throws unless the two factors of a product have the same dtype.
void check_same_dtype(const at::Tensor& left, const at::Tensor& right) {
  TORCH_CHECK(left.scalar_type() == right.scalar_type(), "expected scalar type ",
              left.scalar_type(), " but found ", right.scalar_type());
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype) {
  check_same_dtype(self, mat2);
  return at::mm(convert(self, out_dtype), convert(mat2, out_dtype));
}

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype,
                   at::Tensor& out) {
  check_same_dtype(self, mat2);
  return at::mm_out(out, convert(self, out_dtype), convert(mat2, out_dtype));
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype) {
  check_same_dtype(self, mat2);
  return at::bmm(convert(self, out_dtype), convert(mat2, out_dtype));
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype,
                    at::Tensor& out) {
  check_same_dtype(self, mat2);
  return at::bmm_out(out, convert(self, out_dtype), convert(mat2, out_dtype));
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                 at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha) {
  check_same_dtype(mat1, mat2);
  return at::addmm(convert(self, out_dtype), convert(mat1, out_dtype), convert(mat2, out_dtype),
                   beta, alpha);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                      at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha,
                      at::Tensor& out) {
  check_same_dtype(mat1, mat2);
  return at::addmm_out(out, convert(self, out_dtype), convert(mat1, out_dtype),
                       convert(mat2, out_dtype), beta, alpha);
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                   at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha) {
  check_same_dtype(batch1, batch2);
  return at::baddbmm(convert(self, out_dtype), convert(batch1, out_dtype),
                     convert(batch2, out_dtype), beta, alpha);
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                        at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha,
                        at::Tensor& out) {
  check_same_dtype(batch1, batch2);
  return at::baddbmm_out(out, convert(self, out_dtype), convert(batch1, out_dtype),
                         convert(batch2, out_dtype), beta, alpha);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("mm.dtype", TORCH_FN(mm));
  library.impl("mm.dtype_out", TORCH_FN(mm_out));
  library.impl("bmm.dtype", TORCH_FN(bmm));
  library.impl("bmm.dtype_out", TORCH_FN(bmm_out));
  library.impl("addmm.dtype", TORCH_FN(addmm));
  library.impl("addmm.dtype_out", TORCH_FN(addmm_out));
  library.impl("baddbmm.dtype", TORCH_FN(baddbmm));
  library.impl("baddbmm.dtype_out", TORCH_FN(baddbmm_out));
}

}  // namespace openreg
