// SPDX-License-Identifier: BSD-3-Clause
//
// Adaptive average pooling and its gradient, which are not structured operators in torch. Any
// thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/AdaptivePooling.h>
#include <ATen/ops/adaptive_avg_pool2d_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/kernels/dtype.h"
#include "aten/launch/cpu_kernel.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

constexpr int64_t kCost = 2;  // elementary operations per element of the larger tensor

at::Tensor adaptive_avg_pool2d(const at::Tensor& self, at::IntArrayRef output_size) {
  Operands operands;
  operands.add_device(self);
  TORCH_CHECK(output_size.size() == 2, "adaptive_avg_pool2d: output_size must be 2");
  TORCH_CHECK(output_size[0] >= 0 && output_size[1] >= 0,
              "adaptive_avg_pool2d: elements of output_size must be greater than or equal to 0 ",
              "but received {", output_size[0], ", ", output_size[1], "}");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got ", self.sizes());
  for (const int64_t i : {-2, -1}) {
    TORCH_CHECK(
        self.size(i) > 0,
        "adaptive_avg_pool2d(): Expected input to have non-zero size for non-batch dimensions, "
        "but input has sizes ",
        self.sizes(), " with dimension ", i + self.dim(), " being empty");
  }
  check_floating("adaptive_avg_pool2d", self);
  at::DimVector sizes(self.sizes());
  sizes[sizes.size() - 2] = output_size[0];
  sizes[sizes.size() - 1] = output_size[1];
  at::Tensor output =
      empty_on(operands.device(), sizes, self.scalar_type(), self.suggest_memory_format());
  if (output.numel() > 0) {
    launch_cpu({"aten::_adaptive_avg_pool2d", self.numel() * kCost}, operands.device(),
               &at::cpu::adaptive_avg_pool2d_outf, self, output_size, output);
  }
  return output;
}

at::Tensor adaptive_avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  TORCH_CHECK(grad_output.dim() == self.dim() && (self.dim() == 3 || self.dim() == 4),
              "adaptive_avg_pool2d_backward(): Expected 3D or 4D tensors, but got ",
              grad_output.sizes(), " and ", self.sizes());
  TORCH_CHECK(self.scalar_type() == grad_output.scalar_type(),
              "adaptive_avg_pool2d_backward: Expected dtype ", self.dtype(),
              " for `grad_output` but got dtype ", grad_output.dtype());
  check_floating("adaptive_avg_pool2d_backward", self);
  at::Tensor grad_input =
      empty_on(operands.device(), self.sizes(), self.scalar_type(), self.suggest_memory_format());
  launch_kernel({"aten::_adaptive_avg_pool2d_backward", self.numel() * kCost}, operands.device(),
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output),
                          grad_input = aliases.alias(grad_input)]() mutable {
                    grad_input.zero_();
                    if (grad_output.numel() > 0) {
                      at::native::adaptive_avg_pool2d_backward_kernel(c10::kCPU, grad_input,
                                                                      grad_output);
                    }
                  };
                });
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_adaptive_avg_pool2d", TORCH_FN(adaptive_avg_pool2d));
  library.impl("_adaptive_avg_pool2d_backward", TORCH_FN(adaptive_avg_pool2d_backward));
}

}  // namespace openreg
