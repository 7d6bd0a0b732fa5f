// SPDX-License-Identifier: BSD-3-Clause
//
// Dropout in one launch. On accelerators, torch calls native_dropout, which replaces bernoulli_ and
// two multiplications. Any thread may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "aten/kernels/dtype.h"
#include "aten/launch/launch.h"
#include "runtime/c10/generator.h"

namespace openreg {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

constexpr int64_t kRandomCost = 16;  // elementary operations per element

// Keeps each element with probability `kept` and divides the kept elements by `kept`. The mask has
// the dtype `mask_dtype`.
Two launch_dropout(const char* name, const at::Tensor& input, double kept,
                   at::ScalarType mask_dtype, const std::optional<at::Generator>& generator) {
  Operands operands;
  operands.add_device(input);
  at::Tensor output = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, input.options().dtype(mask_dtype));
  if (input.numel() > 0) {
    const PhiloxState state = reserve(generator, operands.device(), kCpuGeneratorNumbers);
    launch_kernel({name, input.numel() * kRandomCost}, operands.device(), [&](AliasPool& aliases) {
      return [input = aliases.alias(input), kept, state, output = aliases.alias(output),
              mask = aliases.alias(mask)]() mutable {
        at::cpu::bernoulli_(mask, kept, make_cpu_generator(state));
        at::cpu::mul_out(output, input, mask);
        output.mul_(kept == 0 ? 0.0 : 1 / kept);
      };
    });
  }
  return {std::move(output), std::move(mask)};
}

// Returns the input multiplied by the mask and by `scale`.
at::Tensor launch_masked_scale(const char* name, const at::Tensor& self, const at::Tensor& mask,
                               double scale) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mask);
  TORCH_CHECK(mask.sizes() == self.sizes(), "openreg: ", name, ": the mask has size ", mask.sizes(),
              " but the tensor to be masked has size ", self.sizes());
  // The floating-point scale promotes integers to floating point.
  at::Tensor result =
      at::empty_like(self, self.options().dtype(at::result_type(self, at::Scalar(scale))));
  launch_kernel({name, self.numel() * 2}, operands.device(), [&](AliasPool& aliases) {
    return [self = aliases.alias(self), mask = aliases.alias(mask), scale,
            result = aliases.alias(result)]() mutable {
      at::cpu::mul_out(result, self, mask);
      result.mul_(scale);
    };
  });
  return result;
}

Two native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) {
    at::Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool));
    return {input.clone(), mask.fill_(true)};
  }
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  check_floating("native_dropout", input);
  return launch_dropout("aten::native_dropout", input, 1 - p, c10::kBool, std::nullopt);
}

at::Tensor native_dropout_backward(const at::Tensor& grad_output, const at::Tensor& mask,
                                   double scale) {
  TORCH_CHECK(mask.scalar_type() == c10::kBool, "Mask should be Bool Scalar Type ",
              mask.scalar_type());
  return launch_masked_scale("aten::native_dropout_backward", grad_output, mask, scale);
}

// Implements the first operator of a legacy pair that only accelerators have. `p` is the
// probability that an element is kept, and the mask is uint8.
Two fused_dropout(const at::Tensor& self, double p, std::optional<at::Generator> generator) {
  TORCH_CHECK(p > 0 && p <= 1,
              "openreg: _fused_dropout: expected a probability in (0, 1], but got ", p);
  check_floating("fused_dropout", self);
  return launch_dropout("aten::_fused_dropout", self, p, c10::kByte, generator);
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == c10::kByte,
              "openreg: _masked_scale: expected the mask to have dtype torch.uint8, but got ",
              mask.scalar_type());
  return launch_masked_scale("aten::_masked_scale", self, mask, scale);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_dropout", TORCH_FN(native_dropout));
  library.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
  library.impl("_fused_dropout", TORCH_FN(fused_dropout));
  library.impl("_masked_scale", TORCH_FN(masked_scale));
}

}  // namespace openreg
