// SPDX-License-Identifier: BSD-3-Clause
//
// Convolution and its gradient, from 1-d to 3-d: plain, transposed, grouped and dilated.
//
// For an out-of-tree device, torch checks the arguments, converts 1-d to 2-d, handles empty batches
// and complex numbers, and then calls convolution_overrideable. For the CPU, torch selects a
// backend at this point. This file calls the same selection function with aliases, so that results
// have the same layout as on the CPU. The kernels exist only in functional form, so their results
// are copied to the output. (oneDNN's result must be copied on the CPU, too, because it is in
// oneDNN's layout.) Any thread may call these operators.
#include <ATen/EmptyTensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "aten/launch/argument_key.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"
#include "runtime/c10/stream.h"
#include "runtime/diagnostics/implicit_wait.h"

namespace openreg {
namespace {

// The number of multiply-adds per unit of cost, and the cost of selecting a kernel in oneDNN.
constexpr int64_t kOperationsPerCost = 6;
constexpr int64_t kSetupCost = 16 * 1024;
// The cost of a convolution with an empty result. torch's backend selection depends on the number
// of threads, and some backends reject an empty result. With this cost, the kernel runs with as
// many threads as on the CPU.
constexpr int64_t kEmptyCost = kParallelCost;

// Owns the arguments of a convolution other than its tensors.
struct Geometry {
  Geometry(at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
           bool transposed, at::IntArrayRef output_padding, int64_t groups)
      : stride(stride),
        padding(padding),
        dilation(dilation),
        transposed(transposed),
        output_padding(output_padding),
        groups(groups) {}

  at::DimVector output_sizes(const at::Tensor& input, const at::Tensor& weight) const {
    return transposed ? at::DimVector(at::native::conv_input_size(input.sizes(), weight.sizes(),
                                                                  padding, output_padding, stride,
                                                                  dilation, groups))
                      : at::DimVector(at::native::conv_output_size(input.sizes(), weight.sizes(),
                                                                   padding, stride, dilation));
  }

  // Returns the memory format that the CPU uses for the output and for the gradients of input and
  // weight.
  c10::MemoryFormat memory_format(const at::Tensor& input, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias) const {
    const auto symbols = [](const at::DimVector& sizes) { return c10::fromIntArrayRefSlow(sizes); };
    const auto bias_sizes = bias.has_value() && bias->defined()
                                ? c10::OptionalArrayRef<c10::SymInt>(bias->sym_sizes())
                                : c10::OptionalArrayRef<c10::SymInt>();
    const at::native::ConvBackend backend = at::native::select_conv_backend(
        input, weight, bias, symbols(stride), symbols(padding), symbols(dilation), transposed,
        symbols(output_padding), c10::SymInt(groups), bias_sizes);
    return at::native::_determine_backend_memory_format(input, weight, backend);
  }

  // Returns the cost. One filter is applied per element of the output, or of the input if
  // transposed.
  int64_t cost(const at::Tensor& input, const at::Tensor& weight, int64_t output_numel) const {
    const int64_t filter = weight.numel() / std::max<int64_t>(1, weight.size(0));
    return kSetupCost + (transposed ? input.numel() : output_numel) * filter / kOperationsPerCost;
  }

  // Returns the key of all arguments that the kernel may reject and output_sizes() does not check.
  uint64_t key(const at::Tensor& weight) const {
    uint64_t key = transposed ? 2 : 1;
    for (const at::DimVector* numbers : {&stride, &padding, &dilation, &output_padding}) {
      for (const int64_t number : *numbers) {
        key = argument_key(key, static_cast<uint64_t>(number));
      }
    }
    for (const int64_t size : weight.sizes()) {
      key = argument_key(key, uint64_t{size == 0});
    }
    return key;
  }

  at::DimVector stride;
  at::DimVector padding;
  at::DimVector dilation;
  bool transposed;
  at::DimVector output_padding;
  int64_t groups;
};

void check_dtypes(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  TORCH_CHECK(input.options().type_equal(weight.options()), "Input type (", input.toString(),
              ") and weight type (", weight.toString(), ") should be the same");
  TORCH_CHECK(!bias.defined() || input.options().type_equal(bias.options()), "Input type (",
              input.scalar_type(), ") and bias type (", bias.scalar_type(), ") should be the same");
}

// Waits for the kernel if only the kernel can reject the arguments (integers, empty results). Thus
// the error is thrown at the call, like other argument errors. These cases need not be fast.
void sync_if_kernel_may_reject(const at::Tensor& input, const at::Tensor& output) {
  if (!c10::isFloatingType(input.scalar_type()) || output.numel() == 0) {
    announce_wait("aten::convolution",
                  "only its kernel can tell whether it supports these dtypes and sizes",
                  input.device().index());
    synchronize_stream(current_native_stream(input.device().index()));
  }
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  Operands operands;
  operands.add_device(input);
  operands.add_device(weight);
  if (bias.has_value()) {
    operands.add_device(*bias);
  }
  check_dtypes(input, weight, bias.value_or(at::Tensor()));
  const Geometry geometry(stride, padding, dilation, transposed, output_padding, groups);
  at::Tensor output;
  const at::DimVector sizes = geometry.output_sizes(input, weight);
  at::detail::check_size_nonnegative(sizes);
  const int64_t numel = c10::multiply_integers(sizes);
  const int64_t cost = numel == 0 ? kEmptyCost : geometry.cost(input, weight, numel);
  launch_kernel({.name = "aten::convolution_overrideable",
                 .cost = cost,
                 .argument_key = geometry.key(weight)},
                operands.device(), [&](AliasPool& aliases) {
                  Owned<at::Tensor> input_alias(aliases, input);
                  Owned<at::Tensor> weight_alias(aliases, weight);
                  Owned<std::optional<at::Tensor>> bias_alias(aliases, bias);
                  output = empty_on(operands.device(), sizes, input.scalar_type(),
                                    geometry.memory_format(input_alias, weight_alias, bias_alias));
                  return [input = std::move(input_alias), weight = std::move(weight_alias),
                          bias = std::move(bias_alias), geometry, output = aliases.alias(output)] {
                    store(at::convolution(input, weight, bias, geometry.stride, geometry.padding,
                                          geometry.dilation, geometry.transposed,
                                          geometry.output_padding, geometry.groups),
                          output);
                  };
                });
  sync_if_kernel_may_reject(input, output);
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> output_mask) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(input);
  operands.add_device(weight);
  check_dtypes(input, weight, grad_output);
  const Geometry geometry(stride, padding, dilation, transposed, output_padding, groups);
  const int64_t channels = grad_output.size(1);
  const bool fits = grad_output.sizes() == geometry.output_sizes(input, weight);
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor grad_bias;
  const int64_t cost = grad_output.numel() == 0
                           ? kEmptyCost
                           : geometry.cost(input, weight, grad_output.numel()) *
                                 (1 + int64_t{output_mask[0]} + int64_t{output_mask[1]});
  launch_kernel(
      {.name = "aten::convolution_backward_overrideable",
       .cost = cost,
       .check = fits ? Check::kNewArguments : Check::kAlways,
       .argument_key = geometry.key(weight)},
      operands.device(), [&](AliasPool& aliases) {
        Owned<at::Tensor> input_alias(aliases, input);
        Owned<at::Tensor> weight_alias(aliases, weight);
        const c10::MemoryFormat format =
            geometry.memory_format(input_alias, weight_alias, std::nullopt);
        if (output_mask[0]) {
          grad_input = empty_on(operands.device(), input.sizes(), input.scalar_type(), format);
        }
        if (output_mask[1]) {
          grad_weight = empty_on(operands.device(), weight.sizes(), weight.scalar_type(), format);
        }
        if (output_mask[2]) {
          grad_bias = empty_on(operands.device(), {channels}, weight.scalar_type());
        }
        return [grad_output = Owned<at::Tensor>(aliases, grad_output),
                input = std::move(input_alias), weight = std::move(weight_alias), geometry,
                channels, output_mask, grad_input = own_tensor(aliases, grad_input),
                grad_weight = own_tensor(aliases, grad_weight),
                grad_bias = own_tensor(aliases, grad_bias)] {
          const at::DimVector bias_sizes{channels};
          const auto [input_result, weight_result, bias_result] = at::convolution_backward(
              grad_output, input, weight,
              output_mask[2] ? at::OptionalIntArrayRef(bias_sizes) : at::OptionalIntArrayRef(),
              geometry.stride, geometry.padding, geometry.dilation, geometry.transposed,
              geometry.output_padding, geometry.groups, output_mask);
          store(input_result, grad_input);
          store(weight_result, grad_weight);
          store(bias_result, grad_bias);
        };
      });
  sync_if_kernel_may_reject(input, grad_output);
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", TORCH_FN(convolution));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace openreg
