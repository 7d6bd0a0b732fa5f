// SPDX-License-Identifier: BSD-3-Clause
//
// Dropout in one launch: what torch calls on devices instead of bernoulli_ and two products.
// Threads: any.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "aten/dtype.h"
#include "aten/launch.h"
#include "runtime/c10/generator.h"

namespace openreg {
namespace {

constexpr int64_t kRandomCost = 16;  // of an element

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  Operands operands;
  operands.add_device(input);
  at::Tensor output = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool));
  if (!train.value_or(true)) {
    output.copy_(input);
    mask.fill_(true);
    return {std::move(output), std::move(mask)};
  }
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  check_floating("native_dropout", input);
  if (input.numel() > 0) {
    const PhiloxState state = reserve(std::nullopt, operands.device(), kCpuGeneratorNumbers);
    const double kept = 1 - p;
    launch_kernel({"aten::native_dropout", input.numel() * kRandomCost}, operands.device(),
                  [&](AliasPool& aliases) {
                    return [input = aliases.alias(input), kept, state,
                            output = aliases.alias(output), mask = aliases.alias(mask)]() mutable {
                      at::cpu::bernoulli_(mask, kept, make_cpu_generator(state));
                      at::cpu::mul_out(output, input, mask);
                      output.mul_(kept == 0 ? 0.0 : 1 / kept);
                    };
                  });
  }
  return {std::move(output), std::move(mask)};
}

at::Tensor native_dropout_backward(const at::Tensor& grad_output, const at::Tensor& mask,
                                   double scale) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(mask);
  TORCH_CHECK(mask.scalar_type() == c10::kBool, "Mask should be Bool Scalar Type ",
              mask.scalar_type());
  TORCH_CHECK(mask.sizes() == grad_output.sizes(),
              "openreg: native_dropout_backward: the mask has size ", mask.sizes(),
              " but grad_output has size ", grad_output.sizes());
  // Multiplied by a real number, integers become real.
  at::Tensor grad_input = at::empty_like(
      grad_output, grad_output.options().dtype(at::result_type(grad_output, at::Scalar(scale))));
  launch_kernel({"aten::native_dropout_backward", grad_output.numel() * 2}, operands.device(),
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), mask = aliases.alias(mask),
                          scale, grad_input = aliases.alias(grad_input)]() mutable {
                    at::cpu::mul_out(grad_input, grad_output, mask);
                    grad_input.mul_(scale);
                  };
                });
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_dropout", TORCH_FN(native_dropout));
  library.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
}

}  // namespace openreg
