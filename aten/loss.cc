// SPDX-License-Identifier: BSD-3-Clause
//
// Binary cross-entropy: the loss of torch that is neither structured nor made of other operators.
//
// A probability outside of [0, 1] is found where the kernel runs, and thrown at the next
// synchronization. Threads: any.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/binary_cross_entropy_backward_cpu_dispatch.h>
#include <ATen/ops/binary_cross_entropy_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>

#include "aten/dtype.h"
#include "aten/factories.h"
#include "aten/launch.h"
#include "aten/owned.h"
#include "aten/store.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;

constexpr int64_t kForwardCost = 16;  // two logarithms an element
constexpr int64_t kBackwardCost = 4;

// All of the size of the first.
void check_operands(const char* kernel, const at::Tensor& self, const at::Tensor& target,
                    const Optional& weight) {
  check_floating(kernel, self);
  const auto check = [&](const at::Tensor& other) {
    TORCH_CHECK(other.scalar_type() == self.scalar_type(), "Found dtype ", other.scalar_type(),
                " but expected ", self.scalar_type());
    TORCH_CHECK(at::infer_size(self.sizes(), other.sizes()) == self.sizes(),
                "openreg: binary_cross_entropy: a tensor of size ", other.sizes(),
                " can not be expanded to the input's size ", self.sizes());
  };
  check(target);
  if (weight.has_value() && weight->defined()) {
    check(*weight);
  }
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const Optional& weight, int64_t reduction) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(target);
  operands.add_device(weight.value_or(at::Tensor()));
  check_operands("binary_cross_entropy", self, target, weight);
  at::Tensor loss = reduction == at::Reduction::None
                        ? at::empty_like(self)
                        : empty_on(operands.device(), {}, self.scalar_type());
  launch_kernel({"aten::binary_cross_entropy", self.numel() * kForwardCost}, operands.device(),
                [&](AliasPool& aliases) {
                  return [self = aliases.alias(self), target = aliases.alias(target),
                          weight = Owned<Optional>(aliases, weight), reduction,
                          loss = aliases.alias(loss)] {
                    store(at::cpu::binary_cross_entropy(self, target, weight, reduction), loss);
                  };
                });
  return loss;
}

at::Tensor binary_cross_entropy_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                         const at::Tensor& target, const Optional& weight,
                                         int64_t reduction) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  operands.add_device(target);
  operands.add_device(weight.value_or(at::Tensor()));
  check_operands("binary_cross_entropy_backward", self, target, weight);
  at::Tensor grad_input = at::empty_like(self);
  launch_kernel({"aten::binary_cross_entropy_backward", self.numel() * kBackwardCost},
                operands.device(), [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), self = aliases.alias(self),
                          target = aliases.alias(target), weight = Owned<Optional>(aliases, weight),
                          reduction, grad_input = aliases.alias(grad_input)] {
                    store(at::cpu::binary_cross_entropy_backward(grad_output, self, target, weight,
                                                                 reduction),
                          grad_input);
                  };
                });
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  library.impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
}

}  // namespace openreg
