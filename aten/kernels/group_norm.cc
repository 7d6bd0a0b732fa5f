// SPDX-License-Identifier: BSD-3-Clause
//
// Group normalization and its gradient. (Instance normalization, for example, uses either this or
// batch normalization.) As in layer_norm.cc, the results are written directly to device memory. Any
// thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/group_norm.h>
#include <torch/library.h>

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

Three group_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight_,
                 const std::optional<at::Tensor>& bias_, int64_t samples, int64_t channels,
                 int64_t pixels, int64_t groups, double eps) {
  const at::Tensor weight = weight_.value_or(at::Tensor());
  const at::Tensor bias = bias_.value_or(at::Tensor());
  Operands operands;
  operands.add_device(input);
  operands.add_device(weight);
  operands.add_device(bias);
  const c10::ScalarType statistics = check_parameters(input, weight, bias);
  TORCH_CHECK(groups > 0, "Expected num groups to be greater than 0, got ", groups);
  TORCH_CHECK(channels % groups == 0, "Expected number of channels in input to be divisible by ",
              "num_groups, but got input of shape ", input.sizes(), " and ", "num_groups=", groups);
  TORCH_CHECK(!weight.defined() || (weight.dim() == 1 && weight.numel() == channels),
              "Expected weight to be a vector of size equal to the number of ",
              "channels in input, but got weight of shape ", weight.sizes(), " and input of shape ",
              input.sizes());
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.numel() == channels),
              "Expected bias to be a vector of size equal to the number of ",
              "channels in input, but got bias of shape ", bias.sizes(), " and input of shape ",
              input.sizes());
  check_floating("GroupNormKernelImpl", input);
  const at::Tensor& X = input;  // torch's message contains this name
  const c10::MemoryFormat memory_format = X.suggest_memory_format();
  TORCH_CHECK(X.is_contiguous(memory_format));

  const c10::DeviceIndex device = operands.device();
  at::Tensor output = empty_on(device, input.sizes(), input.scalar_type(), memory_format);
  at::Tensor mean = empty_on(device, {samples, groups}, statistics);
  at::Tensor rstd = empty_on(device, {samples, groups}, statistics);
  launch_kernel(
      {"aten::native_group_norm", input.numel() * kForwardCost}, device, [&](AliasPool& aliases) {
        return [input = aliases.alias(input), weight = own_tensor(aliases, weight),
                bias = own_tensor(aliases, bias), samples, channels, pixels, groups, eps,
                output = aliases.alias(output), mean = aliases.alias(mean),
                rstd = aliases.alias(rstd)]() mutable {
          at::native::GroupNormKernel(c10::kCPU, input, contiguous(weight), contiguous(bias),
                                      samples, channels, pixels, groups, eps, output, mean, rstd);
        };
      });
  return {std::move(output), std::move(mean), std::move(rstd)};
}

Three group_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                          const at::Tensor& mean, const at::Tensor& rstd,
                          const std::optional<at::Tensor>& weight_, int64_t samples,
                          int64_t channels, int64_t pixels, int64_t groups,
                          std::array<bool, 3> output_mask) {
  const at::Tensor weight = weight_.value_or(at::Tensor());
  Operands operands;
  for (const at::Tensor* tensor : {&grad_output, &input, &mean, &rstd, &weight}) {
    operands.add_device(*tensor);
  }
  TORCH_CHECK(input.scalar_type() == grad_output.scalar_type(),
              "Expected scalar types of X and dY ", "are same.");
  check_parameters(input, mean, rstd);
  check_floating("GroupNormBackwardKernelImpl", input);

  const c10::DeviceIndex device = operands.device();
  const c10::MemoryFormat format = input.suggest_memory_format();
  const c10::ScalarType parameter = weight.defined() ? weight.scalar_type() : input.scalar_type();
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor grad_bias;
  if (output_mask[0]) {
    grad_input = empty_on(device, input.sizes(), input.scalar_type(), format);
  }
  if (output_mask[1]) {
    grad_weight = empty_on(device, {channels}, parameter);
  }
  if (output_mask[2]) {
    grad_bias = empty_on(device, {channels}, parameter);
  }
  launch_kernel({"aten::native_group_norm_backward", input.numel() * kBackwardCost}, device,
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), input = aliases.alias(input),
                          mean = aliases.alias(mean), rstd = aliases.alias(rstd),
                          weight = own_tensor(aliases, weight), samples, channels, pixels, groups,
                          format, grad_input = own_tensor(aliases, grad_input),
                          grad_weight = own_tensor(aliases, grad_weight),
                          grad_bias = own_tensor(aliases, grad_bias)]() mutable {
                    at::native::GroupNormBackwardKernel(
                        c10::kCPU, grad_output.contiguous(format), input.contiguous(format),
                        mean.contiguous(), rstd.contiguous(), contiguous(weight), samples, channels,
                        pixels, groups, grad_input, grad_weight, grad_bias);
                  };
                });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_group_norm", TORCH_FN(group_norm));
  library.impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
}

}  // namespace openreg
