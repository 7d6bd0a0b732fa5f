// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix products of float8 matrices with scales: _scaled_mm and _scaled_mm_v2. Either each matrix
// has a single scale, or each row of the first matrix and each column of the second has its own.
// The products use CPU kernels (docs/quantization.md).
//
// Sizes and scales are checked at the call, with torch's messages. The dtypes of the bias and the
// result are checked by the kernel, so the first launch with new dtypes waits for the kernel. Any
// thread may call these operators.
#include <ATen/BlasBackend.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_scaled_mm_cpu_dispatch.h>
#include <ATen/ops/_scaled_mm_v2_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "aten/launch/cpu_kernel.h"
#include "aten/launch/launch.h"
#include "aten/structured/arguments.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;
using OptionalDtype = std::optional<at::ScalarType>;
using at::blas::ScalingType;
using at::blas::SwizzleType;

bool is_float8(const at::Tensor& tensor) { return c10::isFloat8Type(tensor.scalar_type()); }

bool is_defined(const Optional& tensor) { return tensor.has_value() && tensor->defined(); }

void check_bias(const Optional& bias, const at::Tensor& mat2) {
  TORCH_CHECK(!is_defined(bias) || bias->numel() == mat2.size(1), "Bias must be size ",
              mat2.size(1), " but got ", bias->numel());
}

// Returns whether each row of the first matrix and each column of the second matrix has a scale.
bool are_rowwise(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a,
                 const at::Tensor& scale_b) {
  const bool are_float = scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat;
  return are_float && scale_a.sizes() == at::IntArrayRef{self.size(0), 1} &&
         scale_b.sizes() == at::IntArrayRef{1, mat2.size(1)} && scale_a.is_contiguous() &&
         scale_b.is_contiguous();
}

void check_scaled_mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a,
                     const at::Tensor& scale_b, const Optional& bias,
                     const Optional& scale_result) {
  TORCH_CHECK(self.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(mat2.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(self.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(!is_defined(scale_result) ||
                  (scale_result->numel() == 1 && scale_result->scalar_type() == at::kFloat),
              "scale_result must be a float scalar");
  check_bias(bias, mat2);
  const bool tensorwise = scale_a.numel() == 1 && scale_b.numel() == 1;
  TORCH_CHECK(!tensorwise || is_float8(self) || self.scalar_type() != mat2.scalar_type(),
              "Expected mat1 to be Float8 matrix got ", self.scalar_type());
  TORCH_CHECK_VALUE(is_float8(self) && is_float8(mat2) &&
                        (tensorwise || are_rowwise(self, mat2, scale_a, scale_b)),
                    "Invalid scaling configuration.\n"
                    "- Both matrices must be float8, but are ",
                    self.scalar_type(), " and ", mat2.scalar_type(),
                    ".\n- For tensorwise scaling both scales must have one element; for rowwise "
                    "scaling they must "
                    "be contiguous float tensors of sizes [",
                    self.size(0), ", 1] and [1, ", mat2.size(1), "], but are ",
                    scale_a.scalar_type(), " of sizes ", scale_a.sizes(), " and ",
                    scale_b.scalar_type(), " of sizes ", scale_b.sizes(), ".");
}

// Checks and resizes a result that the caller provided.
void prepare_out(const at::Tensor& self, const at::Tensor& mat2, OptionalDtype out_dtype,
                 const at::Tensor& out) {
  TORCH_CHECK(!out_dtype.has_value() || *out_dtype == out.scalar_type(),
              "out_dtype must match output matrix type");
  at::native::resize_output(out, {self.size(0), mat2.size(1)});
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mat2);
}

// Launches the product. `out` is undefined in the functional variant; otherwise it is the caller's
// output.
at::Tensor launch_scaled_mm(const at::Tensor& self, const at::Tensor& mat2,
                            const at::Tensor& scale_a, const at::Tensor& scale_b,
                            const Optional& bias, const Optional& scale_result,
                            OptionalDtype out_dtype, bool use_fast_accum, at::Tensor out) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  operands.add(scale_a);
  operands.add(scale_b);
  operands.add(bias);
  operands.add(scale_result);
  operands.add_device(out);
  check_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result);
  if (out.defined()) {
    prepare_out(self, mat2, out_dtype, out);
  } else {
    out = empty_on(operands.device(), {self.size(0), mat2.size(1)},
                   out_dtype.value_or(self.scalar_type()));
  }
  launch_cpu({"aten::_scaled_mm", matmul_cost(self, mat2)}, operands.device(),
             &at::cpu::_scaled_mm_outf, self, mat2, scale_a, scale_b, bias, scale_result,
             OptionalDtype(out.scalar_type()), use_fast_accum, out);
  return out;
}

at::Tensor scaled_mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a,
                     const at::Tensor& scale_b, const Optional& bias, const Optional& scale_result,
                     OptionalDtype out_dtype, bool use_fast_accum) {
  return launch_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype,
                          use_fast_accum, at::Tensor());
}

at::Tensor& scaled_mm_out(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a,
                          const at::Tensor& scale_b, const Optional& bias,
                          const Optional& scale_result, OptionalDtype out_dtype,
                          bool use_fast_accum, at::Tensor& out) {
  launch_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
                   out);
  return out;
}

// The description of the scales of one matrix in _scaled_mm_v2.
struct Recipe {
  at::TensorList scales;
  at::IntArrayRef types;
  at::IntArrayRef swizzles;

  bool is(ScalingType type) const {
    return scales.size() == 1 && types.size() == 1 && types[0] == static_cast<int64_t>(type);
  }
  bool swizzles_any() const {
    return std::any_of(swizzles.begin(), swizzles.end(), [](int64_t swizzle) {
      return swizzle != static_cast<int64_t>(SwizzleType::NO_SWIZZLE);
    });
  }
};

void check_rowwise(const char* name, const at::Tensor& scale, at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(scale.sizes() == sizes && scale.scalar_type() == at::kFloat, name,
                    " must have shape ", sizes, ", got [", scale.sizes(), "]");
  TORCH_CHECK_VALUE(scale.is_contiguous(), name, " must be contiguous");
}

void check_tensorwise(const char* name, const at::Tensor& scale) {
  TORCH_CHECK_VALUE(scale.numel() == 1 && scale.scalar_type() == at::kFloat, name,
                    " must have 1 Float element");
}

void check_scaled_mm_v2(const at::Tensor& self, const at::Tensor& mat2, const Recipe& a,
                        const Recipe& b, const Optional& bias) {
  TORCH_CHECK_VALUE(self.dim() == 2, "mat_a must be a matrix");
  TORCH_CHECK_VALUE(mat2.dim() == 2, "mat_b must be a matrix");
  TORCH_CHECK_VALUE(self.size(1) == mat2.size(0), "mat_a and mat_b shapes cannot be multiplied (",
                    self.size(0), "x", self.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  check_bias(bias, mat2);
  TORCH_CHECK_VALUE(!a.swizzles_any() && !b.swizzles_any(), "openreg does not support swizzle.");
  const bool tensorwise = a.is(ScalingType::TensorWise) && b.is(ScalingType::TensorWise);
  const bool rowwise = a.is(ScalingType::RowWise) && b.is(ScalingType::RowWise);
  TORCH_CHECK_VALUE(is_float8(self) && is_float8(mat2) && (tensorwise || rowwise),
                    "Invalid scaling configuration.\nBoth matrices must be float8, but are ",
                    self.scalar_type(), " and ", mat2.scalar_type(),
                    "; each must have one scale, and both must have the same recipe, TensorWise or "
                    "RowWise, but the recipes are ",
                    a.types, " and ", b.types, ".");
  if (tensorwise) {
    check_tensorwise("scale_a", a.scales[0]);
    check_tensorwise("scale_b", b.scales[0]);
  } else {
    check_rowwise("scale_a", a.scales[0], {self.size(0), 1});
    check_rowwise("scale_b", b.scales[0], {1, mat2.size(1)});
  }
}

at::Tensor launch_scaled_mm_v2(const at::Tensor& self, const at::Tensor& mat2, const Recipe& a,
                               const Recipe& b, const Optional& bias, OptionalDtype out_dtype,
                               at::IntArrayRef contraction_dim, bool use_fast_accum,
                               at::Tensor out) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  operands.add(a.scales);
  operands.add(b.scales);
  operands.add(bias);
  operands.add_device(out);
  check_scaled_mm_v2(self, mat2, a, b, bias);
  if (out.defined()) {
    prepare_out(self, mat2, out_dtype, out);
  } else {
    out = empty_on(operands.device(), {self.size(0), mat2.size(1)},
                   out_dtype.value_or(self.scalar_type()));
  }
  launch_cpu({"aten::_scaled_mm_v2", matmul_cost(self, mat2)}, operands.device(),
             &at::cpu::_scaled_mm_v2_outf, self, mat2, a.scales, a.types, a.swizzles, b.scales,
             b.types, b.swizzles, bias, OptionalDtype(out.scalar_type()), contraction_dim,
             use_fast_accum, out);
  return out;
}

at::Tensor scaled_mm_v2(const at::Tensor& self, const at::Tensor& mat2, at::TensorList scale_a,
                        at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a, at::TensorList scale_b,
                        at::IntArrayRef recipe_b, at::IntArrayRef swizzle_b, const Optional& bias,
                        OptionalDtype out_dtype, at::IntArrayRef contraction_dim,
                        bool use_fast_accum) {
  return launch_scaled_mm_v2(self, mat2, {scale_a, recipe_a, swizzle_a},
                             {scale_b, recipe_b, swizzle_b}, bias, out_dtype, contraction_dim,
                             use_fast_accum, at::Tensor());
}

at::Tensor& scaled_mm_v2_out(const at::Tensor& self, const at::Tensor& mat2, at::TensorList scale_a,
                             at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a,
                             at::TensorList scale_b, at::IntArrayRef recipe_b,
                             at::IntArrayRef swizzle_b, const Optional& bias,
                             OptionalDtype out_dtype, at::IntArrayRef contraction_dim,
                             bool use_fast_accum, at::Tensor& out) {
  launch_scaled_mm_v2(self, mat2, {scale_a, recipe_a, swizzle_a}, {scale_b, recipe_b, swizzle_b},
                      bias, out_dtype, contraction_dim, use_fast_accum, out);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_mm", TORCH_FN(scaled_mm));
  library.impl("_scaled_mm.out", TORCH_FN(scaled_mm_out));
  library.impl("_scaled_mm_v2", TORCH_FN(scaled_mm_v2));
  library.impl("_scaled_mm_v2.out", TORCH_FN(scaled_mm_v2_out));
}

}  // namespace openreg
