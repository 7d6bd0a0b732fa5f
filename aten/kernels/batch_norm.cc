// SPDX-License-Identifier: BSD-3-Clause
//
// Batch normalization and its gradients. torch has three sets of names for these operators:
// native_batch_norm (eager), _native_batch_norm_legit (export) and _batch_norm_with_update (the
// newest). The kernel updates running statistics in place. Any thread may call these functions.
#include <ATen/core/Tensor.h>
#include <ATen/native/batch_norm.h>
#include <ATen/ops/native_batch_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_cpu_dispatch.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "aten/kernels/dtype.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr int64_t kForwardCost = 3;  // elementary operations per element
constexpr int64_t kBackwardCost = 5;

bool is_dense(const at::Tensor& tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(c10::MemoryFormat::ChannelsLast) ||
         tensor.is_contiguous(c10::MemoryFormat::ChannelsLast3d);
}

bool is_dense(const Optional& tensor) {
  return !tensor.has_value() || !tensor->defined() || is_dense(*tensor);
}

// Returns the memory format of a dense tensor. If several formats apply, returns the contiguous
// format if possible, like torch.
c10::MemoryFormat dense_format(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return c10::MemoryFormat::Contiguous;
  }
  return tensor.is_contiguous(c10::MemoryFormat::ChannelsLast3d) ? c10::MemoryFormat::ChannelsLast3d
                                                                 : c10::MemoryFormat::ChannelsLast;
}

at::Tensor defined(const Optional& tensor) { return tensor.value_or(at::Tensor()); }

Three batch_norm(const at::Tensor& input, const Optional& weight, const Optional& bias,
                 const Optional& running_mean, const Optional& running_var, bool training,
                 double momentum, double eps) {
  Operands operands;
  operands.add_device(input);
  for (const Optional* parameter : {&weight, &bias, &running_mean, &running_var}) {
    operands.add_device(defined(*parameter));
  }
  const int64_t channels = input.size(1);
  const c10::ScalarType statistics = check_parameters(input, defined(weight), defined(bias),
                                                      defined(running_mean), defined(running_var));
  check_floating("batch_norm", input);
  TORCH_CHECK(!training || input.numel() > 0,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());

  const bool dense = is_dense(input) && is_dense(weight) && is_dense(bias) &&
                     is_dense(running_mean) && is_dense(running_var);
  const c10::DeviceIndex device = operands.device();
  at::Tensor output = empty_on(device, input.sizes(), input.scalar_type(),
                               dense ? dense_format(input) : input.suggest_memory_format());
  at::Tensor save_mean = empty_on(device, {training ? channels : 0}, statistics);
  at::Tensor save_invstd = empty_on(device, {training ? channels : 0}, statistics);
  // If only one of the running statistics exists, or a parameter has several dimensions, the kernel
  // throws the error.
  bool fits = defined(running_mean).defined() == defined(running_var).defined();
  for (const Optional* parameter : {&weight, &bias, &running_mean, &running_var}) {
    fits &= !defined(*parameter).defined() || (*parameter)->dim() == 1;
  }
  launch_kernel({.name = "aten::native_batch_norm",
                 .cost = input.numel() * kForwardCost,
                 .check = fits ? Check::kNewArguments : Check::kAlways},
                device, [&](AliasPool& aliases) {
                  return [input = aliases.alias(input), weight = Owned<Optional>(aliases, weight),
                          bias = Owned<Optional>(aliases, bias),
                          running_mean = Owned<Optional>(aliases, running_mean),
                          running_var = Owned<Optional>(aliases, running_var), training, momentum,
                          eps, output = aliases.alias(output), save_mean = aliases.alias(save_mean),
                          save_invstd = aliases.alias(save_invstd)]() mutable {
                    if (is_dense(input)) {
                      at::cpu::native_batch_norm_outf(input, weight, bias, running_mean,
                                                      running_var, training, momentum, eps, output,
                                                      save_mean, save_invstd);
                      return;
                    }
                    // For this layout, the out= variant requires statistics that the caller has
                    // already computed. Therefore call the functional variant.
                    const auto [result, mean, invstd] = at::cpu::native_batch_norm(
                        input, weight, bias, running_mean, running_var, training, momentum, eps);
                    store(result, output);
                    store(mean, save_mean);
                    store(invstd, save_invstd);
                  };
                });
  return {std::move(output), std::move(save_mean), std::move(save_invstd)};
}

Three batch_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                          const Optional& weight, const Optional& running_mean,
                          const Optional& running_var, const Optional& save_mean,
                          const Optional& save_invstd, bool training, double eps,
                          std::array<bool, 3> output_mask) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(input);
  for (const Optional* parameter :
       {&weight, &running_mean, &running_var, &save_mean, &save_invstd}) {
    operands.add_device(defined(*parameter));
  }
  const c10::ScalarType parameters =
      check_parameters(input, defined(weight), defined(running_mean), defined(running_var),
                       defined(save_mean), defined(save_invstd));
  check_floating("batch_norm_backward_cpu", input);

  // For dense tensors, one kernel writes all three results without allocating memory.
  const bool dense = is_dense(input) && is_dense(grad_output) &&
                     input.suggest_memory_format() == grad_output.suggest_memory_format();
  const c10::DeviceIndex device = operands.device();
  const int64_t channels = input.size(1);
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor grad_bias;
  if (output_mask[0]) {
    grad_input = empty_on(device, input.sizes(), input.scalar_type(),
                          dense ? dense_format(input) : input.suggest_memory_format());
  }
  if (output_mask[1]) {
    grad_weight = empty_on(device, {channels}, parameters);
  }
  if (output_mask[2]) {
    grad_bias = empty_on(device, {channels}, parameters);
  }
  launch_kernel({"aten::native_batch_norm_backward", input.numel() * kBackwardCost}, device,
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), input = aliases.alias(input),
                          weight = Owned<Optional>(aliases, weight),
                          running_mean = Owned<Optional>(aliases, running_mean),
                          running_var = Owned<Optional>(aliases, running_var),
                          save_mean = Owned<Optional>(aliases, save_mean),
                          save_invstd = Owned<Optional>(aliases, save_invstd), training, eps,
                          output_mask, dense, grad_input = own_tensor(aliases, grad_input),
                          grad_weight = own_tensor(aliases, grad_weight),
                          grad_bias = own_tensor(aliases, grad_bias)]() mutable {
                    if (dense && input.numel() > 0) {
                      at::native::batch_norm_cpu_backward_stub(
                          c10::kCPU, grad_input, grad_weight, grad_bias, grad_output, input,
                          weight.value, running_mean.value, running_var.value, save_mean.value,
                          save_invstd.value, training, eps);
                      return;
                    }
                    const auto [input_result, weight_result, bias_result] =
                        at::cpu::native_batch_norm_backward(
                            grad_output, input, weight, running_mean, running_var, save_mean,
                            save_invstd, training, eps, output_mask);
                    store(input_result, grad_input);
                    store(weight_result, grad_weight);
                    store(bias_result, grad_bias);
                  };
                });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

Three batch_norm_legit(const at::Tensor& input, const Optional& weight, const Optional& bias,
                       at::Tensor& running_mean, at::Tensor& running_var, bool training,
                       double momentum, double eps) {
  return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Three batch_norm_legit_no_stats(const at::Tensor& input, const Optional& weight,
                                const Optional& bias, bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, std::nullopt, std::nullopt, training, momentum, eps);
}

Four batch_norm_with_update(const at::Tensor& input, const Optional& weight, const Optional& bias,
                            at::Tensor& running_mean, at::Tensor& running_var, double momentum,
                            double eps) {
  auto [output, save_mean, save_invstd] = batch_norm(input, weight, bias, running_mean, running_var,
                                                     /*training=*/true, momentum, eps);
  return {std::move(output), std::move(save_mean), std::move(save_invstd),
          empty_on(input.device().index(), {0}, c10::kByte)};
}

// Replaces torch's device-independent implementation, which would call the CPU kernel directly.
Four batch_norm_no_update(const at::Tensor& input, const Optional& weight, const Optional& bias,
                          const Optional& running_mean, const Optional& running_var,
                          double momentum, double eps) {
  auto [output, save_mean, save_invstd] = batch_norm(input, weight, bias, running_mean, running_var,
                                                     /*training=*/false, momentum, eps);
  return {std::move(output), std::move(save_mean), std::move(save_invstd),
          empty_on(input.device().index(), {0}, c10::kByte)};
}

Three batch_norm_with_update_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                      const at::Tensor& weight, const Optional& running_mean,
                                      const Optional& running_var, const Optional& save_mean,
                                      const Optional& save_var, bool update, double eps,
                                      std::array<bool, 3> output_mask,
                                      const at::Tensor& /*reserve*/) {
  return batch_norm_backward(grad_output, input, weight, running_mean, running_var, save_mean,
                             save_var, update, eps, output_mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_batch_norm", TORCH_FN(batch_norm));
  library.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
  library.impl("_native_batch_norm_legit", TORCH_FN(batch_norm_legit));
  library.impl("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_legit_no_stats));
  library.impl("_batch_norm_with_update", TORCH_FN(batch_norm_with_update));
  library.impl("_batch_norm_no_update", TORCH_FN(batch_norm_no_update));
  library.impl("batch_norm_backward", TORCH_FN(batch_norm_with_update_backward));
}

}  // namespace openreg
