// SPDX-License-Identifier: BSD-3-Clause
//
// Scaled dot product attention with the CPU's flash attention kernel.
//
// F.scaled_dot_product_attention calls _fused_sdp_choice to select an implementation. Here the
// CPU's rules decide, using only metadata and the torch.nn.attention settings. If they select the
// flash kernel, we return "overrideable". If the flash kernel does not support the call (dropout, a
// mask that needs a gradient, heads of different widths, ...), the rules select "math", which is
// composed of other operators. Masks, causality, scales and grouped queries are passed to the flash
// kernel unchanged. It does not compute the mask's gradient. A program can request this gradient
// only by calling the operator directly; then mask_gradient() computes it with other operators. Any
// thread may call these functions.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/tensors/factories.h"

namespace openreg {
namespace {

using Optional = std::optional<at::Tensor>;

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const Optional& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped_queries) {
  const int64_t choice = at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal,
                                                           scale, grouped_queries);
  return choice == static_cast<int64_t>(sdp::SDPBackend::flash_attention)
             ? static_cast<int64_t>(sdp::SDPBackend::overrideable)
             : choice;
}

// Returns the cost of two matrix products of sizes (queries x width) and (keys x width). They run
// at some tens of operations per nanosecond.
int64_t attention_cost(const at::Tensor& query, const at::Tensor& key) {
  return query.numel() * key.size(2) / 4;
}

void check_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const Optional& mask, double dropout) {
  const c10::ScalarType dtype = query.scalar_type();
  TORCH_CHECK(
      c10::isFloatingType(dtype),
      "scaled_dot_product_attention_flash_attention: Expected data type in FP32, FP64, BF16, "
      "FP16, but got ",
      dtype, " instead.");
  TORCH_CHECK(
      key.scalar_type() == dtype && value.scalar_type() == dtype,
      "scaled_dot_product_attention: query, key and value must have the same dtype, but got ",
      dtype, ", ", key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK(
      query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
      "scaled_dot_product_attention_flash_attention: Accept only 4 dims inputs shape of {B, "
      "H, T, K}");
  TORCH_CHECK(dropout == 0.0,
              "scaled_dot_product_attention_flash_attention: Currently do not support dropout > 0");
  TORCH_CHECK(query.size(3) == value.size(3) && key.size(3) == value.size(3),
              "scaled_dot_product_attention_flash_attention: Q/K/V should have the same head size");
  if (mask.has_value() && mask->defined()) {
    TORCH_CHECK(
        mask->scalar_type() == c10::kFloat || mask->scalar_type() == dtype,
        "scaled_dot_product_attention_flash_attention: Attention mask is the same data type as "
        "query");
    TORCH_CHECK(mask->dim() == 2 || mask->dim() == 4,
                "scaled_dot_product_attention_flash_attention: Attention mask dim in {2, 4}");
  }
}

// Returns a view with the order of dimensions that the kernel expects: (batch, tokens, heads,
// width).
at::Tensor by_token(const at::Tensor& tensor) { return tensor.transpose(1, 2); }

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                             c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

Attention attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const Optional& mask, double dropout, bool causal, bool debug_mask,
                    std::optional<double> scale) {
  Operands operands;
  operands.add_device(query);
  operands.add_device(key);
  operands.add_device(value);
  if (mask.has_value()) {
    operands.add_device(*mask);
  }
  check_attention(query, key, value, mask, dropout);
  TORCH_CHECK(!debug_mask,
              "openreg: fused attention does not support a debug mask: return_debug_mask must be "
              "False");
  const c10::DeviceIndex device = operands.device();
  at::Tensor output = at::empty_like(query);
  // The result is contiguous, like the result that torch traces.
  at::Tensor logsumexp = empty_on(device, {query.size(0), query.size(1), query.size(2)},
                                  query.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat);
  if (output.numel() > 0) {
    launch_kernel(
        {"aten::_scaled_dot_product_fused_attention_overrideable", attention_cost(query, key)},
        device, [&](AliasPool& aliases) {
          return
              [query = aliases.alias(query), key = aliases.alias(key), value = aliases.alias(value),
               mask = Owned<Optional>(aliases, mask), dropout, causal, scale,
               output = aliases.alias(output), logsumexp = aliases.alias(logsumexp)] {
                at::native::flash_attention_kernel(c10::kCPU, by_token(output), by_token(logsumexp),
                                                   query, key, value, dropout, causal, mask, scale);
              };
        });
  }
  const at::Tensor none;
  // The last values are a seed and an offset. They are unused because there is no dropout, but
  // torch traces them as tensors.
  return {std::move(output),
          std::move(logsumexp),
          none,
          none,
          query.size(2),
          key.size(2),
          empty_on(device, {}, c10::kLong),
          empty_on(device, {}, c10::kLong),
          none};
}

// Returns the gradient of a floating-point mask, which is added to the scaled products. This
// computes a matrix of queries x keys for each head; the flash kernel avoids such a matrix.
at::Tensor mask_gradient(const at::Tensor& grad_output, const at::Tensor& query,
                         const at::Tensor& key, const at::Tensor& value, const at::Tensor& mask,
                         const at::Tensor& output, const at::Tensor& logsumexp, bool causal,
                         std::optional<double> scale) {
  const c10::ScalarType dtype = logsumexp.scalar_type();
  const int64_t group = query.size(1) / key.size(1);
  const auto transposed = [&](const at::Tensor& tensor) {
    return tensor.to(dtype).repeat_interleave(group, /*dim=*/1).transpose(2, 3);
  };
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  const at::Tensor scores = at::matmul(query.to(dtype), transposed(key)) * factor + mask.to(dtype);
  at::Tensor weights = (scores - logsumexp.unsqueeze(3)).exp();
  // Rows that are fully masked have no finite sum.
  weights.masked_fill_(scores == -std::numeric_limits<double>::infinity(), 0);
  if (causal) {
    weights.tril_();
  }
  const at::Tensor grad = grad_output.to(dtype);
  weights *= at::matmul(grad, transposed(value)) - (grad * output).sum(3, /*keepdim=*/true);
  return weights.sum_to_size(mask.sizes());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad_output, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& mask, std::array<bool, 4> output_mask,
    const at::Tensor& output, const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/,
    const at::Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/, double dropout,
    bool causal, const at::Tensor& /*philox_seed*/, const at::Tensor& /*philox_offset*/,
    std::optional<double> scale) {
  if (!grad_output.defined()) {
    return {};
  }
  Operands operands;
  for (const at::Tensor* tensor :
       {&grad_output, &query, &key, &value, &mask, &output, &logsumexp}) {
    operands.add_device(*tensor);
  }
  check_attention(query, key, value, mask, dropout);
  const c10::DeviceIndex device = operands.device();
  // The kernel accumulates into all three gradients, even if they are not requested, and requires
  // that the elements of a row are adjacent. Apart from that, the strides are those that torch
  // traces.
  const auto make = [device](const at::Tensor& like) {
    at::Tensor result = at::empty_like(like);
    return result.stride(3) == 1
               ? result
               : by_token(empty_on(device, {like.size(0), like.size(2), like.size(1), like.size(3)},
                                   like.scalar_type()));
  };
  at::Tensor grad_query = make(query);
  at::Tensor grad_key = make(key);
  at::Tensor grad_value = make(value);
  at::Tensor grad_mask = output_mask[3] && mask.defined() ? at::empty_like(mask) : at::Tensor();
  launch_kernel({"aten::_scaled_dot_product_fused_attention_overrideable_backward",
                 (grad_mask.defined() ? 4 : 2) * attention_cost(query, key)},
                device, [&](AliasPool& aliases) {
                  return [grad_output = aliases.alias(grad_output), query = aliases.alias(query),
                          key = aliases.alias(key), value = aliases.alias(value),
                          mask = Owned<Optional>(aliases, mask), output = aliases.alias(output),
                          logsumexp = aliases.alias(logsumexp), dropout, causal, scale,
                          grad_query = aliases.alias(grad_query),
                          grad_key = aliases.alias(grad_key),
                          grad_value = aliases.alias(grad_value),
                          grad_mask = own_tensor(aliases, grad_mask)] {
                    grad_query.zero_();
                    grad_key.zero_();
                    grad_value.zero_();
                    if (query.numel() > 0) {
                      at::native::flash_attention_backward_kernel(
                          c10::kCPU, by_token(grad_query), by_token(grad_key), by_token(grad_value),
                          by_token(grad_output), by_token(query), by_token(key), by_token(value),
                          by_token(output), by_token(logsumexp), dropout, causal, mask, scale);
                    }
                    if (grad_mask.defined()) {
                      grad_mask.copy_(mask_gradient(grad_output, query, key, value, mask.value,
                                                    output, logsumexp, causal, scale));
                    }
                  };
                });
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value), std::move(grad_mask)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward",
               TORCH_FN(attention_backward));
}

}  // namespace openreg

namespace at::native {
// scaled_dot_product_attention calls this stub; torch._fused_sdp_choice calls the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &openreg::choose_attention)
}  // namespace at::native
