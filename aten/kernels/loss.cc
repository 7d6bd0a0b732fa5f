// SPDX-License-Identifier: BSD-3-Clause
//
// Loss functions and their gradients: those that torch neither implements as structured operators
// nor composes of other operators.
//
// The kernel of binary_cross_entropy detects probabilities outside of [0, 1]. The error is thrown
// at the next synchronization. Any thread may call these operators.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/binary_cross_entropy_backward_cpu_dispatch.h>
#include <ATen/ops/binary_cross_entropy_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/huber_loss_backward_cpu_dispatch.h>
#include <ATen/ops/huber_loss_cpu_dispatch.h>
#include <ATen/ops/mse_loss_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss2d_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss2d_forward_cpu_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/smooth_l1_loss_backward_cpu_dispatch.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "aten/kernels/dtype.h"
#include "aten/launch/cpu_kernel.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;

constexpr int64_t kForwardCost = 16;  // elementary operations per element (two logarithms)
constexpr int64_t kBackwardCost = 4;

void check_dtypes(const at::Tensor& self, const at::Tensor& target, const Optional& weight) {
  check_floating("binary_cross_entropy", self);
  for (const at::Tensor& other : {target, weight.value_or(at::Tensor())}) {
    TORCH_CHECK(!other.defined() || other.scalar_type() == self.scalar_type(), "Found dtype ",
                other.scalar_type(), " but expected ", self.scalar_type());
  }
}

// Throws unless all operands can be expanded to the size of `self`.
void check_sizes(const at::Tensor& self, const at::Tensor& target, const Optional& weight) {
  const auto check = [&](const at::Tensor& other) {
    TORCH_CHECK(at::infer_size(self.sizes(), other.sizes()) == self.sizes(),
                "openreg: binary_cross_entropy: a tensor of size ", other.sizes(),
                " cannot be expanded to the input's size ", self.sizes());
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
  check_dtypes(self, target, weight);
  check_sizes(self, target, weight);
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
  check_sizes(self, target, weight);
  at::Tensor grad_input = at::empty_like(self);
  // The kernel rejects mixed dtypes, so wait for its error.
  launch_kernel({.name = "aten::binary_cross_entropy_backward",
                 .cost = self.numel() * kBackwardCost,
                 .check = operands.mixes() ? Check::kAlways : Check::kNewArguments},
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

// Returns the gradient. It is contiguous, and has the dtype of `self` and the size to which both
// operands are broadcast.
at::Tensor mse_loss_backward(const at::Tensor& grad_output, const at::Tensor& self,
                             const at::Tensor& target, int64_t reduction) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  operands.add_device(target);
  const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), target.sizes());
  (void)at::infer_size_dimvector(grad_output.sizes(), sizes);  // throws if the sizes do not match
  at::Tensor grad_input = empty_on(operands.device(), sizes, self.scalar_type());
  launch_cpu({"aten::mse_loss_backward", grad_input.numel() * 2}, operands.device(),
             &at::cpu::mse_loss_backward_outf, grad_output, self, target, reduction, grad_input);
  return grad_input;
}

// Launches the computation of a gradient. `grad_input` is the output, which torch allocated with
// the input's size. `parameter` is the beta or delta of the loss.
template <class Function>
at::Tensor& launch_gradient(const char* name, Function function, const at::Tensor& grad_output,
                            const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                            double parameter, at::Tensor& grad_input) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  operands.add_device(target);
  operands.add_device(grad_input);
  const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), target.sizes());
  (void)at::infer_size_dimvector(grad_output.sizes(), sizes);
  at::native::resize_output(grad_input, sizes);
  launch_cpu({name, grad_input.numel() * 3}, operands.device(), function, grad_output, self, target,
             reduction, parameter, grad_input);
  return grad_input;
}

at::Tensor& smooth_l1_loss_backward_out(const at::Tensor& grad_output, const at::Tensor& self,
                                        const at::Tensor& target, int64_t reduction, double beta,
                                        at::Tensor& grad_input) {
  return launch_gradient("aten::smooth_l1_loss_backward", &at::cpu::smooth_l1_loss_backward_outf,
                         grad_output, self, target, reduction, beta, grad_input);
}

at::Tensor& huber_loss_backward_out(const at::Tensor& grad_output, const at::Tensor& self,
                                    const at::Tensor& target, int64_t reduction, double delta,
                                    at::Tensor& grad_input) {
  return launch_gradient("aten::huber_loss_backward", &at::cpu::huber_loss_backward_outf,
                         grad_output, self, target, reduction, delta, grad_input);
}

at::Tensor huber_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                      double delta) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(target);
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  const c10::ScalarType dtype = at::result_type(self, target);
  const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), target.sizes());
  at::Tensor loss = empty_on(operands.device(), {}, dtype);
  if (reduction == at::Reduction::None) {
    loss = self.sizes() == sizes && self.scalar_type() == dtype
               ? at::empty_like(self)
               : empty_on(operands.device(), sizes, dtype);
  }
  launch_kernel({"aten::huber_loss", self.numel() * 4}, operands.device(), [&](AliasPool& aliases) {
    return [self = aliases.alias(self), target = aliases.alias(target), reduction, delta,
            loss = aliases.alias(loss)] {
      store(at::cpu::huber_loss(self, target, reduction, delta), loss);
    };
  });
  return loss;
}

void check_image_classes(const char* kernel, const at::Tensor& self, const at::Tensor& target,
                         const Optional& weight) {
  TORCH_CHECK(
      target.dim() == 3,
      "only batches of spatial targets supported (3D tensors) but got targets of dimension: ",
      target.dim());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of dimension: ",
              self.dim());
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
  TORCH_CHECK(!weight.has_value() || !weight->defined() || weight->numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(target.scalar_type() == c10::kLong || target.scalar_type() == c10::kByte,
              "expected target dtype to be Long or Byte, but got ", target.scalar_type());
  check_floating(kernel, self);
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(const at::Tensor& self,
                                                      const at::Tensor& target,
                                                      const Optional& weight, int64_t reduction,
                                                      int64_t ignore_index) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(target);
  operands.add_device(weight.value_or(at::Tensor()));
  check_image_classes("nll_loss2d_forward_out_frame", self, target, weight);
  at::Tensor loss = empty_on(operands.device(),
                             reduction == at::Reduction::None ? target.sizes() : at::IntArrayRef(),
                             self.scalar_type());
  at::Tensor total_weight = empty_on(operands.device(), {}, self.scalar_type());
  launch_kernel({"aten::nll_loss2d_forward", target.numel() * 8}, operands.device(),
                [&](AliasPool& aliases) {
                  return [self = aliases.alias(self), target = aliases.alias(target),
                          weight = Owned<Optional>(aliases, weight), reduction, ignore_index,
                          loss = aliases.alias(loss), total_weight = aliases.alias(total_weight)] {
                    const auto [loss_result, total_result] =
                        at::cpu::nll_loss2d_forward(self, target, weight, reduction, ignore_index);
                    store(loss_result, loss);
                    store(total_result, total_weight);
                  };
                });
  return {std::move(loss), std::move(total_weight)};
}

at::Tensor nll_loss2d_backward(const at::Tensor& grad_output, const at::Tensor& self,
                               const at::Tensor& target, const Optional& weight, int64_t reduction,
                               int64_t ignore_index, const at::Tensor& total_weight) {
  Operands operands;
  operands.add_device(grad_output);
  operands.add_device(self);
  operands.add_device(target);
  operands.add_device(weight.value_or(at::Tensor()));
  operands.add_device(total_weight);
  check_image_classes("nll_loss2d_backward_out_frame", self, target, weight);
  at::Tensor grad_input = empty_on(operands.device(), self.sizes(), self.scalar_type());
  launch_kernel({"aten::nll_loss2d_backward", self.numel() + target.numel() * 8}, operands.device(),
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), self = aliases.alias(self),
                          target = aliases.alias(target), weight = Owned<Optional>(aliases, weight),
                          reduction, ignore_index, total_weight = aliases.alias(total_weight),
                          grad_input = aliases.alias(grad_input)]() mutable {
                    grad_input.zero_();
                    at::cpu::nll_loss2d_backward_outf(grad_output, self, target, weight, reduction,
                                                      ignore_index, total_weight, grad_input);
                  };
                });
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  library.impl("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
  library.impl("mse_loss_backward", TORCH_FN(mse_loss_backward));
  library.impl("smooth_l1_loss_backward.grad_input", TORCH_FN(smooth_l1_loss_backward_out));
  library.impl("huber_loss", TORCH_FN(huber_loss));
  library.impl("huber_loss_backward.out", TORCH_FN(huber_loss_backward_out));
  library.impl("nll_loss2d_forward", TORCH_FN(nll_loss2d_forward));
  library.impl("nll_loss2d_backward", TORCH_FN(nll_loss2d_backward));
}

}  // namespace openreg
