// SPDX-License-Identifier: BSD-3-Clause
//
// Distances between all pairs of points from two sets. For Euclidean distances between many points,
// torch's algorithm consists of several operators. Here one launch runs the whole algorithm. Any
// thread may call these operators.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_cdist_backward_cpu_dispatch.h>
#include <ATen/ops/_cdist_forward_cpu_dispatch.h>
#include <ATen/ops/_euclidean_dist.h>
#include <torch/library.h>

#include <optional>

#include "aten/launch/launch.h"
#include "aten/launch/store.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

// Returns the sizes of the result: (batch..., rows of x1, rows of x2). The batch dimensions are
// broadcast.
at::DimVector distance_sizes(const at::Tensor& x1, const at::Tensor& x2) {
  at::DimVector sizes = at::infer_size_dimvector(x1.sizes().slice(0, x1.dim() - 2),
                                                 x2.sizes().slice(0, x2.dim() - 2));
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  return sizes;
}

int64_t distance_cost(const at::Tensor& distances, const at::Tensor& x1) {
  return distances.numel() * (2 + x1.size(-1) / 4);
}

void check_points(const at::Tensor& x1, const at::Tensor& x2) {
  TORCH_CHECK(x1.dim() >= 2, "cdist only supports at least 2D tensors, X1 got: ", x1.dim(), "D");
  TORCH_CHECK(x2.dim() >= 2, "cdist only supports at least 2D tensors, X2 got: ", x2.dim(), "D");
  TORCH_CHECK(x1.size(-1) == x2.size(-1),
              "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
              " X2: ", x2.size(-1));
  TORCH_CHECK(c10::isFloatingType(x1.scalar_type()),
              "cdist only supports floating-point dtypes, X1 got: ", x1.scalar_type());
  TORCH_CHECK(c10::isFloatingType(x2.scalar_type()),
              "cdist only supports floating-point dtypes, X2 got: ", x2.scalar_type());
  TORCH_CHECK(x1.scalar_type() == x2.scalar_type(), "expected scalar type ", x1.scalar_type(),
              " but found ", x2.scalar_type());
}

at::Tensor cdist_forward(const at::Tensor& x1, const at::Tensor& x2, double p,
                         std::optional<int64_t> compute_mode) {
  Operands operands;
  operands.add_device(x1);
  operands.add_device(x2);
  check_points(x1, x2);
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const int64_t mode = compute_mode.value_or(0);
  TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  at::Tensor distances = empty_on(operands.device(), distance_sizes(x1, x2), x1.scalar_type());
  launch_kernel({"aten::_cdist_forward", distance_cost(distances, x1)}, operands.device(),
                [&](AliasPool& aliases) {
                  return [x1 = aliases.alias(x1), x2 = aliases.alias(x2), p, compute_mode,
                          distances = aliases.alias(distances)] {
                    store(at::cpu::_cdist_forward(x1, x2, p, compute_mode), distances);
                  };
                });
  return distances;
}

at::Tensor cdist_backward(const at::Tensor& grad_output, const at::Tensor& x1, const at::Tensor& x2,
                          double p, const at::Tensor& distances) {
  Operands operands;
  for (const at::Tensor* tensor : {&grad_output, &x1, &x2, &distances}) {
    operands.add_device(*tensor);
  }
  check_points(x1, x2);
  at::DimVector sizes = distance_sizes(x1, x2);
  sizes.back() = x1.size(-1);  // the gradient has the width of x1 and expanded batches
  at::Tensor grad_x1 = empty_on(operands.device(), sizes, x1.scalar_type());
  launch_kernel({"aten::_cdist_backward", 2 * distance_cost(distances, x1)}, operands.device(),
                [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), x1 = aliases.alias(x1),
                          x2 = aliases.alias(x2), p, distances = aliases.alias(distances),
                          grad_x1 = aliases.alias(grad_x1)] {
                    store(at::cpu::_cdist_backward(grad_output.contiguous(), x1.contiguous(),
                                                   x2.contiguous(), p, distances),
                          grad_x1);
                  };
                });
  return grad_x1;
}

at::Tensor euclidean_dist(const at::Tensor& x1, const at::Tensor& x2) {
  Operands operands;
  operands.add_device(x1);
  operands.add_device(x2);
  check_points(x1, x2);
  at::Tensor distances = empty_on(operands.device(), distance_sizes(x1, x2), x1.scalar_type());
  launch_kernel({"aten::_euclidean_dist", distance_cost(distances, x1)}, operands.device(),
                [&](AliasPool& aliases) {
                  return [x1 = aliases.alias(x1), x2 = aliases.alias(x2),
                          distances = aliases.alias(distances)] {
                    store(at::_euclidean_dist(x1, x2), distances);
                  };
                });
  return distances;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_cdist_forward", TORCH_FN(cdist_forward));
  library.impl("_cdist_backward", TORCH_FN(cdist_backward));
  library.impl("_euclidean_dist", TORCH_FN(euclidean_dist));
}

}  // namespace openreg
