// SPDX-License-Identifier: BSD-3-Clause
//
// Activations and a few other elementwise functions. They are not structured operators in torch, so
// the generator cannot write them. Any thread may call these operators.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_prelu_kernel_backward_cpu_dispatch.h>
#include <ATen/ops/_prelu_kernel_cpu_dispatch.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/glu_backward_cpu_dispatch.h>
#include <ATen/ops/hardswish_backward_cpu_dispatch.h>
#include <ATen/ops/hardswish_cpu_dispatch.h>
#include <ATen/ops/hardtanh_backward_cpu_dispatch.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/log_sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/log_sigmoid_forward_cpu_dispatch.h>
#include <ATen/ops/mish_backward_cpu_dispatch.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <tuple>

#include "aten/kernels/dtype.h"
#include "aten/launch/cpu_kernel.h"
#include "aten/launch/launch.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

constexpr int64_t kExponentialCost = 8;

void check_not_bool(const at::Tensor& self, const char* message) {
  TORCH_CHECK(self.scalar_type() != c10::kBool, message);
}

at::Tensor relu(const at::Tensor& self) {
  check_not_bool(self, "Boolean inputs not supported for relu");
  return at::clamp_min(self, 0);
}

at::Tensor& relu_(at::Tensor& self) {
  check_not_bool(self, "Boolean inputs not supported for relu");
  return at::clamp_min_(self, 0);
}

// The limits of hardtanh, after checks. For integer tensors, the limits are converted to integers.
struct Limits {
  Limits(const at::Tensor& self, const at::Scalar& min, const at::Scalar& max)
      : min(min), max(max) {
    check_not_bool(self, "Bool inputs not supported for hardtanh");
    if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
      this->min = min.toLong();
      this->max = max.toLong();
      TORCH_CHECK(
          self.scalar_type() != c10::kByte || (this->min.toLong() >= 0 && this->max.toLong() >= 0),
          "cannot do hardtanh on an unsigned type with negative limits");
    }
  }
  at::Scalar min;
  at::Scalar max;
};

at::Tensor hardtanh(const at::Tensor& self, const at::Scalar& min, const at::Scalar& max) {
  const Limits limits(self, min, max);
  return at::clamp(self, limits.min, limits.max);
}

at::Tensor& hardtanh_(at::Tensor& self, const at::Scalar& min, const at::Scalar& max) {
  const Limits limits(self, min, max);
  return at::clamp_(self, limits.min, limits.max);
}

// Launches a kernel on one or two tensors that have the same size and dtype. The result has the
// strides of `layout`.
template <class Function, class... Arguments>
at::Tensor launch_elementwise(const char* name, int64_t cost, const at::Tensor& layout,
                              Function function, const Operands& operands,
                              const Arguments&... arguments) {
  at::Tensor out = at::empty_like(layout);
  if (out.numel() > 0) {
    launch_cpu({name, out.numel() * cost}, operands.device(), function, arguments..., out);
  }
  return out;
}

// Two operands of the same size and dtype. In the rare case that these differ, the operands are
// broadcast and promoted.
struct Pair {
  Pair(const at::Tensor& grad_output, const at::Tensor& self)
      : grad_output(grad_output), self(self) {
    operands.add_device(grad_output);
    operands.add_device(self);
    if (grad_output.scalar_type() != self.scalar_type()) {
      const c10::ScalarType dtype = at::result_type(grad_output, self);
      this->grad_output = grad_output.to(dtype);
      this->self = self.to(dtype);
    }
    if (grad_output.sizes() != self.sizes()) {
      const at::DimVector sizes = at::infer_size_dimvector(grad_output.sizes(), self.sizes());
      this->grad_output = this->grad_output.expand(sizes);
      this->self = this->self.expand(sizes);
    }
  }
  Operands operands;
  at::Tensor grad_output;
  at::Tensor self;
};

at::Tensor hardtanh_backward(const at::Tensor& grad_output, const at::Tensor& self,
                             const at::Scalar& min, const at::Scalar& max) {
  const Pair pair(grad_output, self);
  check_floating("hardtanh_backward_cpu", pair.self);
  return launch_elementwise("aten::hardtanh_backward", 1, pair.grad_output,
                            &at::cpu::hardtanh_backward_outf, pair.operands, pair.grad_output,
                            pair.self, min, max);
}

at::Tensor hardswish(const at::Tensor& self) {
  Operands operands;
  operands.add_device(self);
  check_floating("hardswish_cpu", self);
  return launch_elementwise("aten::hardswish", 2, self, &at::cpu::hardswish_outf, operands, self);
}

at::Tensor& hardswish_(at::Tensor& self) {
  Operands operands;
  operands.add_device(self);
  check_floating("hardswish_cpu", self);
  launch_cpu({"aten::hardswish_", self.numel() * 2}, operands.device(), &at::cpu::hardswish_, self);
  return self;
}

// Launches a torch kernel that exists only in functional form.
template <at::Tensor (*kFunction)(const at::Tensor&, const at::Tensor&)>
at::Tensor launch_functional(const char* name, int64_t cost, const Pair& pair) {
  at::Tensor grad_input = at::empty_like(pair.grad_output);
  launch_kernel({name, grad_input.numel() * cost}, pair.operands.device(), [&](AliasPool& aliases) {
    return [grad_output = aliases.alias(pair.grad_output), self = aliases.alias(pair.self),
            grad_input = aliases.alias(grad_input)] {
      store(kFunction(grad_output, self), grad_input);
    };
  });
  return grad_input;
}

at::Tensor hardswish_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  const Pair pair(grad_output, self);
  check_floating("hardswish_backward_cpu", pair.self);
  return launch_functional<&at::cpu::hardswish_backward>("aten::hardswish_backward", 3, pair);
}

at::Tensor mish_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  const Pair pair(grad_output, self);
  check_floating("mish_backward_cpu", pair.self);
  return launch_functional<&at::cpu::mish_backward>("aten::mish_backward", 2 * kExponentialCost,
                                                    pair);
}

at::Tensor glu_backward(const at::Tensor& grad_output, const at::Tensor& self, int64_t dim) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  const int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.size(wrapped) % 2 == 0, "Halving dimension must be even, but dimension ",
              wrapped, " is size ", self.size(wrapped));
  check_floating("glu_backward_cpu", self);
  at::Tensor grad_input = empty_on(operands.device(), self.sizes(), self.scalar_type());
  launch_cpu({"aten::glu_backward", self.numel() * kExponentialCost}, operands.device(),
             &at::cpu::glu_backward_outf, grad_output, self, wrapped, grad_input);
  return grad_input;
}

// Implements _prelu_kernel. torch's prelu() has already reshaped the weight, so that it has as many
// dimensions as `self`. Dimensions of size 1 are broadcast.
at::Tensor prelu(const at::Tensor& self, const at::Tensor& weight) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(weight);
  TORCH_CHECK(self.scalar_type() == weight.scalar_type(),
              "prelu: Type promoting not supported. Got ", self.scalar_type(), " and ",
              weight.scalar_type());
  check_floating("prelu_cpu", self);
  at::Tensor output = at::empty_like(self);
  launch_kernel({"aten::_prelu_kernel", self.numel() * 2}, operands.device(),
                [&](AliasPool& aliases) {
                  return [self = aliases.alias(self), weight = aliases.alias(weight),
                          output = aliases.alias(output)] {
                    store(at::cpu::_prelu_kernel(self, weight), output);
                  };
                });
  return output;
}

std::tuple<at::Tensor, at::Tensor> prelu_backward(const at::Tensor& grad_output,
                                                  const at::Tensor& self,
                                                  const at::Tensor& weight) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  operands.add_device(weight);
  check_floating("prelu_backward_cpu", self);
  at::Tensor grad_self = at::empty_like(self);
  at::Tensor grad_weight = at::empty_like(self);  // torch later sums it to the size of the weight
  launch_kernel({"aten::_prelu_kernel_backward", self.numel() * 3}, operands.device(),
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), self = aliases.alias(self),
                          weight = aliases.alias(weight), grad_self = aliases.alias(grad_self),
                          grad_weight = aliases.alias(grad_weight)] {
                    const auto [self_result, weight_result] =
                        at::cpu::_prelu_kernel_backward(grad_output, self, weight);
                    store(self_result, grad_self);
                    store(weight_result, grad_weight);
                  };
                });
  return {std::move(grad_self), std::move(grad_weight)};
}

std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self) {
  Operands operands;
  operands.add_device(self);
  check_floating("log_sigmoid_cpu", self);
  at::Tensor output = empty_on(operands.device(), self.sizes(), self.scalar_type());
  at::Tensor buffer = empty_on(operands.device(), self.sizes(), self.scalar_type());
  launch_cpu({"aten::log_sigmoid_forward", self.numel() * 2 * kExponentialCost}, operands.device(),
             &at::cpu::log_sigmoid_forward_outf, self, output, buffer);
  return {std::move(output), std::move(buffer)};
}

at::Tensor log_sigmoid_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                const at::Tensor& buffer) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  operands.add_device(buffer);
  check_floating("log_sigmoid_backward_cpu", self);
  return launch_elementwise("aten::log_sigmoid_backward", 3, grad_output,
                            &at::cpu::log_sigmoid_backward_outf, operands, grad_output, self,
                            buffer);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("relu", TORCH_FN(relu));
  library.impl("relu_", TORCH_FN(relu_));
  library.impl("isnan", TORCH_FN(at::native::isnan));  // torch's function calls self != self
  library.impl("hardtanh", TORCH_FN(hardtanh));
  library.impl("hardtanh_", TORCH_FN(hardtanh_));
  library.impl("hardtanh_backward", TORCH_FN(hardtanh_backward));
  library.impl("hardswish", TORCH_FN(hardswish));
  library.impl("hardswish_", TORCH_FN(hardswish_));
  library.impl("hardswish_backward", TORCH_FN(hardswish_backward));
  library.impl("mish_backward", TORCH_FN(mish_backward));
  library.impl("glu_backward", TORCH_FN(glu_backward));
  library.impl("_prelu_kernel", TORCH_FN(prelu));
  library.impl("_prelu_kernel_backward", TORCH_FN(prelu_backward));
  library.impl("log_sigmoid_forward", TORCH_FN(log_sigmoid_forward));
  library.impl("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward));
}

}  // namespace openreg
