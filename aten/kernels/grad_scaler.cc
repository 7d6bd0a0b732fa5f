// SPDX-License-Identifier: BSD-3-Clause
//
// The two operators of torch.amp.GradScaler, which update the gradients and the scale. They only
// modify their arguments, so the CPU kernels are queued unchanged. Arguments that a kernel would
// reject when it runs are rejected here, at the call. Any thread may call these operators.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_native.h>
#include <ATen/ops/_amp_update_scale_native.h>
#include <torch/library.h>

#include "aten/launch/cpu_kernel.h"

namespace openreg {
namespace {

constexpr int64_t kCost = 2;  // elementary operations per element

// Throws unless the tensor has exactly one element and this dtype.
void check_scalar_tensor(const char* op, const char* argument, const at::Tensor& tensor,
                         c10::ScalarType dtype) {
  TORCH_CHECK(tensor.numel() == 1 && tensor.scalar_type() == dtype, op, ": ", argument,
              " must have one element of type ", dtype, ", but has sizes ", tensor.sizes(),
              " and type ", tensor.scalar_type());
}

// Multiplies the gradients by `inv_scale`, and sets `found_inf` to 1 if an element is infinite or
// NaN.
void check_and_unscale(at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  static constexpr const char* kName = "_amp_foreach_non_finite_check_and_unscale_";
  Operands operands;
  operands.add_device(grads);
  operands.add_device(found_inf);
  operands.add_device(inv_scale);
  check_scalar_tensor(kName, "found_inf", found_inf, at::kFloat);
  check_scalar_tensor(kName, "inv_scale", inv_scale, at::kFloat);
  for (const at::Tensor& grad : grads) {
    const c10::ScalarType dtype = grad.scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(
        dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16,
        kName, " not implemented for '", dtype, "'");
    at::assert_no_internal_overlap(grad);
  }
  launch_cpu({"aten::_amp_foreach_non_finite_check_and_unscale_", operands.numel() * kCost},
             operands.device(), &at::native::_amp_foreach_non_finite_check_and_unscale_cpu_, grads,
             found_inf, inv_scale);
}

// Decreases the scale after a step with an infinity or NaN, and increases it after enough
// consecutive steps without one.
at::Tensor& update_scale(at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf,
                         double growth_factor, double backoff_factor, int64_t growth_interval) {
  static constexpr const char* kName = "_amp_update_scale_";
  Operands operands;
  operands.add_device(scale);
  operands.add_device(growth_tracker);
  operands.add_device(found_inf);
  check_scalar_tensor(kName, "the scale", scale, at::kFloat);
  check_scalar_tensor(kName, "growth_tracker", growth_tracker, at::kInt);
  check_scalar_tensor(kName, "found_inf", found_inf, at::kFloat);
  launch_cpu({"aten::_amp_update_scale_", kCost}, operands.device(),
             &at::native::_amp_update_scale_cpu_, scale, growth_tracker, found_inf, growth_factor,
             backoff_factor, growth_interval);
  return scale;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(check_and_unscale));
  m.impl("_amp_update_scale_", TORCH_FN(update_scale));
}

}  // namespace
}  // namespace openreg
