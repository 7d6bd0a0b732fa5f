// SPDX-License-Identifier: BSD-3-Clause
//
// The fused layers that torch.nn uses for inference: a transformer's encoder layer and multi-head
// attention. The CPU has them only in functional form. One launch runs a whole layer. Any thread
// may call these operators.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_native_multi_head_attention_cpu_dispatch.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_cpu_dispatch.h>
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

// The number of kinds of parallel loops in a layer: the products, the attention's products, softmax
// and norms.
constexpr int64_t kLayerLoops = 4;

// Returns the cost of a layer. Each token is multiplied by every weight, at about eight
// multiplications per quarter of a nanosecond.
int64_t layer_cost(const at::Tensor& tokens, int64_t weights) {
  return tokens.numel() / std::max<int64_t>(1, tokens.size(-1)) * weights / 8;
}

// Returns whether the attention's parameters and mask have the sizes that the kernel expects. The
// sizes of the mask are (tokens, tokens) for type 0, (batch, tokens) for type 1, and (batch, heads,
// tokens, tokens) for type 2. If the sizes are wrong, the kernel throws the error.
bool fits(const at::Tensor& query, const at::Tensor& key, int64_t num_heads,
          const at::Tensor& qkv_weight, const at::Tensor& qkv_bias, const at::Tensor& proj_weight,
          const at::Tensor& proj_bias, const Optional& mask, std::optional<int64_t> mask_type) {
  const int64_t embed_dim = query.size(2);
  if (qkv_weight.sizes() != at::IntArrayRef({3 * embed_dim, embed_dim}) ||
      qkv_bias.sizes() != at::IntArrayRef({3 * embed_dim}) ||
      proj_weight.sizes() != at::IntArrayRef({embed_dim, embed_dim}) ||
      proj_bias.sizes() != at::IntArrayRef({embed_dim})) {
    return false;
  }
  if (!mask.has_value() || !mask->defined()) {
    return true;
  }
  const int64_t batch = query.size(0);
  const int64_t targets = query.size(1);
  const int64_t sources = key.size(1);
  switch (mask_type.value_or(-1)) {
    case 0:
      return mask->sizes() == at::IntArrayRef({targets, sources});
    case 1:
      return mask->sizes() == at::IntArrayRef({batch, sources});
    case 2:
      return mask->sizes() == at::IntArrayRef({batch, num_heads, targets, sources});
    default:
      return false;
  }
}

at::Tensor encoder_layer(const at::Tensor& src, int64_t embed_dim, int64_t num_heads,
                         const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                         const at::Tensor& proj_weight, const at::Tensor& proj_bias, bool use_gelu,
                         bool norm_first, double eps, const at::Tensor& norm_weight_1,
                         const at::Tensor& norm_bias_1, const at::Tensor& norm_weight_2,
                         const at::Tensor& norm_bias_2, const at::Tensor& ffn_weight_1,
                         const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2,
                         const at::Tensor& ffn_bias_2, const Optional& mask,
                         std::optional<int64_t> mask_type) {
  const std::array<const at::Tensor*, 13> tensors = {
      &src,           &qkv_weight,   &qkv_bias,      &proj_weight, &proj_bias,
      &norm_weight_1, &norm_bias_1,  &norm_weight_2, &norm_bias_2, &ffn_weight_1,
      &ffn_bias_1,    &ffn_weight_2, &ffn_bias_2};
  Operands operands;
  for (const at::Tensor* tensor : tensors) {
    operands.add_device(*tensor);
  }
  operands.add_device(mask.value_or(at::Tensor()));
  check_floating("transformer_encoder_layer_forward", src);
  TORCH_CHECK(
      src.dim() == 3 && src.size(-1) == embed_dim,
      "openreg: _transformer_encoder_layer_fwd: expected a source of shape (batch, tokens, ",
      embed_dim, "), but got ", src.sizes());
  at::Tensor output = empty_on(operands.device(), src.sizes(), src.scalar_type());
  const int64_t weights =
      qkv_weight.numel() + proj_weight.numel() + ffn_weight_1.numel() + ffn_weight_2.numel();
  const int64_t hidden = ffn_weight_1.size(0);
  const bool layer_fits =
      fits(src, src, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type) &&
      ffn_weight_1.sizes() == at::IntArrayRef({hidden, embed_dim}) &&
      ffn_bias_1.sizes() == at::IntArrayRef({hidden}) &&
      ffn_weight_2.sizes() == at::IntArrayRef({embed_dim, hidden}) &&
      ffn_bias_2.sizes() == at::IntArrayRef({embed_dim});
  launch_kernel({.name = "aten::_transformer_encoder_layer_fwd",
                 .cost = layer_cost(src, weights),
                 .loops = kLayerLoops,
                 .check = layer_fits ? Check::kNewArguments : Check::kAlways},
                operands.device(), [&](AliasPool& aliases) {
                  std::array<at::Tensor, 13> arguments;
                  for (size_t i = 0; i < tensors.size(); ++i) {
                    arguments[i] = aliases.alias(*tensors[i]);
                  }
                  return [arguments = std::move(arguments), embed_dim, num_heads, use_gelu,
                          norm_first, eps, mask = Owned<Optional>(aliases, mask), mask_type,
                          output = aliases.alias(output)] {
                    const auto& [src, qkv_weight, qkv_bias, proj_weight, proj_bias, norm_weight_1,
                                 norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1,
                                 ffn_weight_2, ffn_bias_2] = arguments;
                    store(at::cpu::_transformer_encoder_layer_fwd(
                              src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight,
                              proj_bias, use_gelu, norm_first, eps, norm_weight_1, norm_bias_1,
                              norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
                              ffn_bias_2, mask, mask_type),
                          output);
                  };
                });
  return output;
}

std::tuple<at::Tensor, at::Tensor> multi_head_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t embed_dim,
    int64_t num_heads, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
    const at::Tensor& proj_weight, const at::Tensor& proj_bias, const Optional& mask,
    bool need_weights, bool average_weights, std::optional<int64_t> mask_type) {
  Operands operands;
  for (const at::Tensor* tensor :
       {&query, &key, &value, &qkv_weight, &qkv_bias, &proj_weight, &proj_bias}) {
    operands.add_device(*tensor);
  }
  operands.add_device(mask.value_or(at::Tensor()));
  check_floating("native_multi_head_attention", query);
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == embed_dim, "passed-in embed_dim ", embed_dim,
              " didn't match last dim of query ", query.size(2));
  TORCH_CHECK(key.dim() == 3, "expected 3-D `key`, got ", key.dim(), "-D tensor");
  TORCH_CHECK(value.dim() == 3, "expected 3-D `value`, got ", value.dim(), "-D tensor");
  TORCH_CHECK(num_heads > 0 && embed_dim % num_heads == 0,
              "`embed_dim` must divide evenly by `num_heads`");
  const c10::DeviceIndex device = operands.device();
  at::Tensor output = empty_on(device, query.sizes(), query.scalar_type());
  at::Tensor weights;
  if (need_weights) {
    const int64_t batch = query.size(0);
    const at::DimVector sizes = average_weights
                                    ? at::DimVector{batch, query.size(1), key.size(1)}
                                    : at::DimVector{batch, num_heads, query.size(1), key.size(1)};
    weights = empty_on(device, sizes, query.scalar_type());
  }
  launch_kernel(
      {.name = "aten::_native_multi_head_attention",
       .cost = layer_cost(query, qkv_weight.numel() + proj_weight.numel()),
       .check = fits(query, key, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                     mask_type)
                    ? Check::kNewArguments
                    : Check::kAlways},
      device, [&](AliasPool& aliases) {
        const at::Tensor query_alias = aliases.alias(query);
        // If query, key and value are the same tensor, the kernel computes one product instead of
        // three.
        const at::Tensor key_alias = key.is_same(query) ? query_alias : aliases.alias(key);
        const at::Tensor value_alias = value.is_same(key) ? key_alias : aliases.alias(value);
        return [query = query_alias, key = key_alias, value = value_alias, embed_dim, num_heads,
                qkv_weight = aliases.alias(qkv_weight), qkv_bias = aliases.alias(qkv_bias),
                proj_weight = aliases.alias(proj_weight), proj_bias = aliases.alias(proj_bias),
                mask = Owned<Optional>(aliases, mask), need_weights, average_weights, mask_type,
                output = aliases.alias(output), weights = own_tensor(aliases, weights)] {
          const auto [output_result, weights_result] = at::cpu::_native_multi_head_attention(
              query, key, value, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
              mask, need_weights, average_weights, mask_type);
          store(output_result, output);
          store(weights_result, weights);
        };
      });
  return {std::move(output), std::move(weights)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer));
  library.impl("_native_multi_head_attention", TORCH_FN(multi_head_attention));
}

}  // namespace openreg
