// SPDX-License-Identifier: BSD-3-Clause
//
// The operators of torch.nn.SyncBatchNorm, which normalizes a batch that is distributed over
// several processes. Each process computes the statistics of its part of the batch. The statistics
// are gathered and combined, and the combined statistics are used to normalize. The CPU has no
// kernels for these operators. Here they are composed of other operators, each of which is queued.
// Statistics of float16 and bfloat16 are float32. Any thread may call these operators.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

at::ScalarType statistics_dtype(const at::Tensor& input) {
  return at::toOpMathType(input.scalar_type());
}

bool has(const Optional& tensor) { return tensor.has_value() && tensor->defined(); }

// Returns all dimensions except the channel dimension.
at::DimVector batch_dims(const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2,
              "openreg: batch norm expects an input with at least 2 dimensions, but got sizes ",
              input.sizes());
  at::DimVector dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

// Reshapes a tensor with one value per channel, so that it can be broadcast with `input`.
at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& input) {
  at::DimVector sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = input.size(1);
  return numbers.to(statistics_dtype(input)).view(sizes);
}

Two stats(const at::Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(input.to(statistics_dtype(input)), batch_dims(input),
                                       /*correction=*/at::Scalar(0));
  return {std::move(mean), at::rsqrt(variance + eps)};
}

at::Tensor elemt(const at::Tensor& input, const Optional& weight, const Optional& bias,
                 const at::Tensor& mean, const at::Tensor& invstd, double /*eps*/) {
  at::Tensor output = (input - by_channel(mean, input)).mul_(by_channel(invstd, input));
  if (has(weight)) {
    output.mul_(by_channel(*weight, input));
  }
  if (has(bias)) {
    output.add_(by_channel(*bias, input));
  }
  return output.to(input.scalar_type());
}

at::Tensor& elemt_out(const at::Tensor& input, const Optional& weight, const Optional& bias,
                      const at::Tensor& mean, const at::Tensor& invstd, double eps,
                      at::Tensor& out) {
  out.resize_(input.sizes());
  return out.copy_(elemt(input, weight, bias, mean, invstd, eps));
}

// Combines the statistics of all processes. `mean` and `invstd` have sizes [parts, channels], and
// `counts` has size [parts].
Two gather_stats_with_counts(const at::Tensor& input, const at::Tensor& mean,
                             const at::Tensor& invstd, const Optional& running_mean,
                             const Optional& running_var, double momentum, double eps,
                             const at::Tensor& counts) {
  const at::ScalarType dtype = statistics_dtype(input);
  const at::Tensor means = mean.to(dtype);
  const at::Tensor weights = counts.to(dtype).unsqueeze(1);
  const at::Tensor total = weights.sum(0);
  at::Tensor all_mean = (means * weights).sum(0) / total;
  // The squares are computed relative to the common mean, to avoid cancellation.
  const at::Tensor variances = invstd.to(dtype).pow(-2) - eps;
  const at::Tensor squares = ((variances + (means - all_mean).square()) * weights).sum(0);
  if (has(running_mean)) {
    running_mean->mul_(1 - momentum).add_(all_mean, momentum);
  }
  if (has(running_var)) {
    running_var->mul_(1 - momentum).add_(squares / (total - 1), momentum);
  }
  return {std::move(all_mean), at::rsqrt(squares / total + eps)};
}

Two gather_stats(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                 const Optional& running_mean, const Optional& running_var, double momentum,
                 double eps, int64_t count) {
  const at::Tensor counts =
      at::full({mean.size(0)}, count, mean.options().dtype(statistics_dtype(input)));
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                                  counts);
}

// Returns the sums over this process's part of the batch, and this process's gradients of weight
// and bias. `input_g`, `weight_g` and `bias_g` select the required gradients.
Four backward_reduce(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
                     const at::Tensor& invstd, const Optional& weight, bool input_g, bool weight_g,
                     bool bias_g) {
  const at::DimVector dims = batch_dims(input);
  const at::Tensor grad = grad_out.to(statistics_dtype(input));
  at::Tensor sum_dy = grad.sum(dims);
  at::Tensor sum_dy_xmu = (grad * (input - by_channel(mean, input))).sum(dims);
  const at::ScalarType parameters = has(weight) ? weight->scalar_type() : statistics_dtype(input);
  at::Tensor grad_weight;
  at::Tensor grad_bias;
  if (weight_g) {
    grad_weight = (sum_dy_xmu * invstd).to(parameters);
  }
  if (bias_g) {
    grad_bias = sum_dy.to(parameters, /*non_blocking=*/false, /*copy=*/true);
  }
  if (!input_g) {
    sum_dy.reset();
    sum_dy_xmu.reset();
  }
  return {std::move(sum_dy), std::move(sum_dy_xmu), std::move(grad_weight), std::move(grad_bias)};
}

// Returns the gradient of the input. The sums include all processes. `count` contains the number of
// elements per channel of each process.
at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input,
                          const at::Tensor& mean, const at::Tensor& invstd, const Optional& weight,
                          const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu,
                          const at::Tensor& count) {
  const at::ScalarType dtype = statistics_dtype(input);
  const at::Tensor total = count.sum().to(dtype);
  const at::Tensor scale = invstd.to(dtype);
  const at::Tensor slope = sum_dy_xmu.to(dtype) / total * scale.square();
  at::Tensor grad = grad_out - by_channel(sum_dy.to(dtype) / total, input);
  grad.sub_((input - by_channel(mean, input)).mul_(by_channel(slope, input)));
  grad.mul_(by_channel(has(weight) ? scale * weight->to(dtype) : scale, input));
  return grad.to(input.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("batch_norm_stats", TORCH_FN(stats));
  library.impl("batch_norm_elemt", TORCH_FN(elemt));
  library.impl("batch_norm_elemt.out", TORCH_FN(elemt_out));
  library.impl("batch_norm_gather_stats", TORCH_FN(gather_stats));
  library.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_stats_with_counts));
  library.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  library.impl("batch_norm_backward_elemt", TORCH_FN(backward_elemt));
}

}  // namespace openreg
