// SPDX-License-Identifier: BSD-3-Clause
//
// Sums, means and maxima of bags of embeddings, and their gradients.
//
// The results have the sizes that torch's compiler expects of an accelerator. They differ from the
// CPU's: offset2bag, the bag of each index, is always filled; bag_size has one element per offset;
// max_indices exists only for the mode "max". Invalid indices and offsets are detected by the
// kernel, so their error is thrown at the next synchronization. Any thread may call these
// operators.
#include <ATen/Dispatch.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_embedding_bag_cpu_dispatch.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/_embedding_bag_dense_backward_cpu_dispatch.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_cpu_dispatch.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
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

constexpr int64_t kSum = 0;
constexpr int64_t kMax = 2;

struct Bags {
  at::Tensor output;
  at::Tensor offset2bag;
  at::Tensor bag_size;
  at::Tensor max_indices;
};

void check_weights(const at::Tensor& weight, const at::Tensor& indices, const Optional& weights,
                   int64_t mode) {
  if (!weights.has_value() || !weights->defined()) {
    return;
  }
  TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights only supported with mode='sum'");
  at::checkSameType("embedding_bag", at::TensorArg(weight, "weight", 1),
                    at::TensorArg(*weights, "per_sample_weights", 1));
  TORCH_CHECK(weights->dim() == 1 && weights->numel() == indices.numel(),
              "embedding_bag: per_sample_weights must have one dimension and one element for each "
              "of the ",
              indices.numel(), " indices, but has sizes ", weights->sizes());
}

void check_bags(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
                int64_t mode, const Optional& per_sample_weights, bool include_last_offset) {
  const auto check_integers = [](const at::Tensor& tensor, const char* name) {
    at::checkScalarTypes("embedding_bag", at::TensorArg(tensor, name, 1), {at::kLong, at::kInt});
  };
  check_integers(indices, "indices");
  check_integers(offsets, "offsets");
  at::checkScalarTypes("embedding_bag", at::TensorArg(weight, "weight", 1),
                       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ",
              weight.dim());
  TORCH_CHECK(indices.dim() == 1, "input has to be a 1D Tensor, but got Tensor of dimension ",
              indices.dim());
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ",
              offsets.dim());
  TORCH_CHECK(mode >= kSum && mode <= kMax, "`mode` must be sum, mean, or max.");
  TORCH_CHECK(!include_last_offset || offsets.size(0) > 0,
              "include_last_offset: number of offset should be at least 1");
  check_weights(weight, indices, per_sample_weights, mode);
}

// Computes the bag of each index, which is the last bag that starts at or before that index.
template <class T>
void fill_bags(const at::Tensor& offsets, int64_t bags, const at::Tensor& offset2bag) {
  const at::Tensor starts = offsets.contiguous();
  const T* const first = starts.const_data_ptr<T>();
  auto* const bag = static_cast<T*>(offset2bag.mutable_data_ptr());
  for (int64_t i = 0; i < offset2bag.numel(); ++i) {
    const int64_t place = std::upper_bound(first, first + bags, static_cast<T>(i)) - first - 1;
    bag[i] = static_cast<T>(std::max<int64_t>(place, 0));
  }
}

// The forward kernel and its arguments.
struct EmbeddingBag {
  at::Tensor weight;
  at::Tensor indices;
  at::Tensor offsets;
  bool scale_grad_by_freq;
  int64_t mode;
  bool sparse;
  Owned<Optional> per_sample_weights;
  bool include_last_offset;
  int64_t padding_idx;
  Bags bags;

  void operator()() const {
    const auto [output, offset2bag, bag_size, max_indices] =
        at::cpu::_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse,
                                per_sample_weights, include_last_offset, padding_idx);
    store(output, bags.output);
    const int64_t count = output.size(0);
    AT_DISPATCH_INDEX_TYPES(offsets.scalar_type(), "embedding_bag", [&] {
      if (bags.offset2bag.scalar_type() == offsets.scalar_type()) {
        fill_bags<index_t>(offsets, count, bags.offset2bag);
      } else {
        const at::Tensor wide = at::empty(bags.offset2bag.sizes(), offsets.options());
        fill_bags<index_t>(offsets, count, wide);
        store(wide, bags.offset2bag);
      }
    });
    bags.bag_size.zero_();
    store(bag_size.narrow(0, 0, count), bags.bag_size.narrow(0, 0, count));
    store(max_indices, bags.max_indices);
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> embedding_bag(
    const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
    bool scale_grad_by_freq, int64_t mode, bool sparse, const Optional& per_sample_weights,
    bool include_last_offset, int64_t padding_idx) {
  Operands operands;
  for (const at::Tensor* tensor : {&weight, &indices, &offsets}) {
    operands.add_device(*tensor);
  }
  operands.add_device(per_sample_weights);
  check_bags(weight, indices, offsets, mode, per_sample_weights, include_last_offset);
  const c10::DeviceIndex device = operands.device();
  const at::ScalarType dtype = indices.scalar_type();
  const int64_t count = offsets.size(0) - (include_last_offset ? 1 : 0);
  Bags bags;
  bags.output = empty_on(device, {count, weight.size(1)}, weight.scalar_type());
  bags.offset2bag = empty_on(device, {indices.size(0)}, dtype);
  bags.bag_size = empty_on(device, offsets.sizes(), dtype);
  bags.max_indices =
      mode == kMax ? empty_on(device, bags.output.sizes(), dtype) : empty_on(device, {0}, dtype);
  launch_kernel({"aten::_embedding_bag", indices.numel() * (4 + weight.size(1))}, device,
                [&](AliasPool& aliases) {
                  return EmbeddingBag{
                      aliases.alias(weight),
                      aliases.alias(indices),
                      aliases.alias(offsets),
                      scale_grad_by_freq,
                      mode,
                      sparse,
                      Owned<Optional>(aliases, per_sample_weights),
                      include_last_offset,
                      padding_idx,
                      {aliases.alias(bags.output), aliases.alias(bags.offset2bag),
                       aliases.alias(bags.bag_size), aliases.alias(bags.max_indices)}};
                });
  return {bags.output, bags.offset2bag, bags.bag_size, bags.max_indices};
}

at::Tensor embedding_bag_dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                                        const at::Tensor& offset2bag, const at::Tensor& bag_size,
                                        const at::Tensor& maximum_indices, int64_t num_weights,
                                        bool scale_grad_by_freq, int64_t mode,
                                        const Optional& per_sample_weights, int64_t padding_idx) {
  Operands operands;
  for (const at::Tensor* tensor : {&grad, &indices, &offset2bag, &bag_size, &maximum_indices}) {
    operands.add_device(*tensor);
  }
  operands.add_device(per_sample_weights);
  at::checkScalarTypes("embedding_bag", at::TensorArg(grad, "grad", 1),
                       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  TORCH_CHECK(grad.dim() == 2, "grad has to be a 2D Tensor, but got Tensor of dimension ",
              grad.dim());
  TORCH_CHECK(offset2bag.numel() == indices.numel(),
              "embedding_bag: offset2bag must have one element for each of the ", indices.numel(),
              " indices, but has ", offset2bag.numel());
  check_weights(grad, indices, per_sample_weights, mode);
  at::Tensor grad_weight =
      empty_on(operands.device(), {num_weights, grad.size(1)}, grad.scalar_type());
  launch_kernel(
      {"aten::_embedding_bag_dense_backward",
       grad_weight.numel() + indices.numel() * (4 + 2 * grad.size(1))},
      operands.device(), [&](AliasPool& aliases) {
        return [grad = aliases.alias(grad), indices = aliases.alias(indices),
                offset2bag = aliases.alias(offset2bag), bag_size = aliases.alias(bag_size),
                maximum_indices = aliases.alias(maximum_indices), num_weights, scale_grad_by_freq,
                mode, per_sample_weights = Owned<Optional>(aliases, per_sample_weights),
                padding_idx, grad_weight = aliases.alias(grad_weight)] {
          store(at::cpu::_embedding_bag_dense_backward(
                    grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
                    scale_grad_by_freq, mode, per_sample_weights, padding_idx),
                grad_weight);
        };
      });
  return grad_weight;
}

at::Tensor embedding_bag_backward(const at::Tensor& grad, const at::Tensor& indices,
                                  const at::Tensor& offsets, const at::Tensor& offset2bag,
                                  const at::Tensor& bag_size, const at::Tensor& maximum_indices,
                                  int64_t num_weights, bool scale_grad_by_freq, int64_t mode,
                                  bool sparse, const Optional& per_sample_weights,
                                  int64_t padding_idx) {
  if (sparse) {
    return at::_embedding_bag_sparse_backward(grad, indices, offsets, offset2bag, bag_size,
                                              num_weights, scale_grad_by_freq, mode,
                                              per_sample_weights, padding_idx);
  }
  return at::_embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices,
                                           num_weights, scale_grad_by_freq, mode,
                                           per_sample_weights, padding_idx);
}

at::Tensor embedding_bag_per_sample_weights_backward(
    const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& indices,
    const at::Tensor& offsets, const at::Tensor& offset2bag, int64_t mode, int64_t padding_idx) {
  Operands operands;
  for (const at::Tensor* tensor : {&grad, &weight, &indices, &offsets, &offset2bag}) {
    operands.add_device(*tensor);
  }
  TORCH_CHECK(mode == kSum,
              "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  TORCH_CHECK(grad.dim() == 2 && weight.dim() == 2 && weight.size(1) == grad.size(1) &&
                  indices.dim() == 1 && offset2bag.numel() == indices.numel(),
              "embedding_bag_backward: the shapes of grad ", grad.sizes(), ", weight ",
              weight.sizes(), ", indices ", indices.sizes(), " and offset2bag ", offset2bag.sizes(),
              " do not match");
  at::Tensor grad_weights = empty_on(operands.device(), {indices.size(0)}, grad.scalar_type());
  launch_kernel(
      {"aten::_embedding_bag_per_sample_weights_backward", indices.numel() * (4 + grad.size(1))},
      operands.device(), [&](AliasPool& aliases) {
        return [grad = aliases.alias(grad), weight = aliases.alias(weight),
                indices = aliases.alias(indices), offsets = aliases.alias(offsets),
                offset2bag = aliases.alias(offset2bag), mode, padding_idx,
                grad_weights = aliases.alias(grad_weights)] {
          // The CPU kernel requires that indices, offsets and offset2bag have the same dtype.
          store(at::cpu::_embedding_bag_per_sample_weights_backward(
                    grad, weight, indices, offsets.to(indices.scalar_type()), offset2bag, mode,
                    padding_idx),
                grad_weights);
        };
      });
  return grad_weights;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_embedding_bag", TORCH_FN(embedding_bag));
  library.impl("_embedding_bag_forward_only", TORCH_FN(embedding_bag));
  library.impl("_embedding_bag_backward", TORCH_FN(embedding_bag_backward));
  library.impl("_embedding_bag_dense_backward", TORCH_FN(embedding_bag_dense_backward));
  library.impl("_embedding_bag_per_sample_weights_backward",
               TORCH_FN(embedding_bag_per_sample_weights_backward));
}

}  // namespace openreg
