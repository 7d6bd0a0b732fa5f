// SPDX-License-Identifier: BSD-3-Clause
//
// Layer normalization and its gradient. torch's kernels (DispatchStubs) write to outputs that the
// caller provides, so results are written directly to device memory. Any thread may call these
// operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/layer_norm.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "aten/kernels/dtype.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr int64_t kForwardCost = 2;  // elementary operations per element
constexpr int64_t kBackwardCost = 4;

at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

Three layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                 const std::optional<at::Tensor>& weight_, const std::optional<at::Tensor>& bias_,
                 double eps) {
  const at::Tensor weight = weight_.value_or(at::Tensor());
  const at::Tensor bias = bias_.value_or(at::Tensor());
  Operands operands;
  operands.add_device(input);
  operands.add_device(weight);
  operands.add_device(bias);
  const c10::ScalarType statistics = check_parameters(input, weight, bias);
  const auto [rows, columns] =
      at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  check_floating("LayerNormKernelImpl", input);

  at::DimVector statistics_sizes(input.sizes());
  std::fill(statistics_sizes.end() - static_cast<int64_t>(normalized_shape.size()),
            statistics_sizes.end(), 1);
  const c10::DeviceIndex device = operands.device();
  at::Tensor output = empty_on(device, input.sizes(), input.scalar_type());
  at::Tensor mean = empty_on(device, statistics_sizes, statistics);
  at::Tensor rstd = empty_on(device, statistics_sizes, statistics);
  if (rows > 0) {
    launch_kernel({"aten::native_layer_norm", input.numel() * kForwardCost}, device,
                  [&, rows = rows, columns = columns](AliasPool& aliases) {
                    return [input = aliases.alias(input), weight = own_tensor(aliases, weight),
                            bias = own_tensor(aliases, bias), rows, columns, eps,
                            output = aliases.alias(output), mean = aliases.alias(mean),
                            rstd = aliases.alias(rstd)]() mutable {
                      at::native::LayerNormKernel(c10::kCPU, input.contiguous(), contiguous(weight),
                                                  contiguous(bias), rows, columns, eps, &output,
                                                  &mean, &rstd);
                    };
                  });
  }
  return {std::move(output), std::move(mean), std::move(rstd)};
}

Three layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                          at::IntArrayRef normalized_shape, const at::Tensor& mean,
                          const at::Tensor& rstd, const std::optional<at::Tensor>& weight_,
                          const std::optional<at::Tensor>& bias_, std::array<bool, 3> output_mask) {
  const at::Tensor weight = weight_.value_or(at::Tensor());
  const at::Tensor bias = bias_.value_or(at::Tensor());
  Operands operands;
  for (const at::Tensor* tensor : {&grad_output, &input, &mean, &rstd, &weight, &bias}) {
    operands.add_device(*tensor);
  }
  const auto [rows, columns] =
      at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  check_floating("LayerNormBackwardKernelImpl", input);

  const c10::DeviceIndex device = operands.device();
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor grad_bias;
  if (output_mask[0]) {
    grad_input = empty_on(device, input.sizes(), input.scalar_type());
  }
  if (output_mask[1]) {
    grad_weight = empty_on(device, weight.sizes(), weight.scalar_type());
  }
  if (output_mask[2]) {
    grad_bias = empty_on(device, bias.sizes(), bias.scalar_type());
  }
  launch_kernel({"aten::native_layer_norm_backward", input.numel() * kBackwardCost}, device,
                [&, rows = rows, columns = columns](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), input = aliases.alias(input),
                          mean = aliases.alias(mean), rstd = aliases.alias(rstd),
                          weight = own_tensor(aliases, weight), rows, columns,
                          grad_input = own_tensor(aliases, grad_input),
                          grad_weight = own_tensor(aliases, grad_weight),
                          grad_bias = own_tensor(aliases, grad_bias)]() mutable {
                    if (rows > 0) {
                      at::native::LayerNormBackwardKernel(
                          c10::kCPU, grad_output.contiguous(), input.contiguous(),
                          mean.contiguous(), rstd.contiguous(), contiguous(weight), rows, columns,
                          &grad_input, &grad_weight, &grad_bias);
                      return;
                    }
                    for (const at::Tensor* sum : {&grad_weight, &grad_bias}) {
                      if (sum->defined()) {
                        sum->zero_();
                      }
                    }
                  };
                });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_layer_norm", TORCH_FN(layer_norm));
  library.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
}

}  // namespace openreg
