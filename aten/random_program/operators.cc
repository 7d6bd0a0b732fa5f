// SPDX-License-Identifier: BSD-3-Clause
#include "aten/random_program/operators.h"

#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace openreg::programs {
namespace {

using at::Tensor;

// Indexes like Python's x[index]. Unlike the operator index.Tensor, this accepts integer masks.
Tensor index(const Tensor& x, const Tensor& index) {
  return at::indexing::get_item(x, {at::indexing::TensorIndex(index)});
}

// Assigns like Python's x.index_put_((index,), values).
Tensor set(const Tensor& x, const Tensor& index, const Tensor& values) {
  return x.index_put_(c10::List<std::optional<Tensor>>({index}), values);
}

Tensor rows(const Tensor& like) {
  return at::zeros({like.size(0)}, like.options().dtype(at::kLong));
}

}  // namespace

Tensor wrap(const Tensor& tensor) { return tensor.remainder(97); }

const Table<const Tensor&, int64_t>& views() {
  static const Table<const Tensor&, int64_t> table{
      {"transpose", [](const Tensor& x, int64_t) { return x.transpose(0, -1); }},
      {"select", [](const Tensor& x, int64_t n) { return x.select(0, n); }},
      {"narrow", [](const Tensor& x, int64_t n) { return x.slice(0, n); }},
      {"step",
       [](const Tensor& x, int64_t n) { return x.slice(-1, std::nullopt, std::nullopt, n + 1); }},
      {"flatten", [](const Tensor& x, int64_t) { return x.view(-1); }},
      {"expand",
       [](const Tensor& x, int64_t n) {
         std::vector<int64_t> sizes = x.sizes().vec();
         sizes.insert(sizes.begin(), n + 1);
         return x.unsqueeze(0).expand(sizes);
       }},
      {"unsqueeze", [](const Tensor& x, int64_t) { return x.unsqueeze(-1); }},
      {"diagonal", [](const Tensor& x, int64_t) { return x.diagonal(); }},
      {"squeeze", [](const Tensor& x, int64_t) { return x.squeeze(); }},
      {"unfold", [](const Tensor& x, int64_t) { return x.unfold(0, 2, 1); }},
      {"detach", [](const Tensor& x, int64_t) { return x.detach(); }},
  };
  return table;
}

const Table<const Tensor&, const Tensor&>& binary_operators() {
  static const Table<const Tensor&, const Tensor&> table{
      {"add", [](const Tensor& x, const Tensor& y) { return wrap(x.add(y)); }},
      {"sub", [](const Tensor& x, const Tensor& y) { return wrap(x.sub(y)); }},
      {"mul", [](const Tensor& x, const Tensor& y) { return wrap(x.mul(y)); }},
      {"max", [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); }},
      {"cat", [](const Tensor& x, const Tensor& y) { return at::cat({x, y}); }},
      {"stack", [](const Tensor& x, const Tensor& y) { return at::stack({x, y}); }},
      {"where", [](const Tensor& x, const Tensor& y) { return at::where(x.gt(y), x, y); }},
      {"matmul", [](const Tensor& x, const Tensor& y) { return wrap(x.matmul(y)); }},
  };
  return table;
}

const Table<const Tensor&>& unary_operators() {
  static const Table<const Tensor&> table{
      {"sum", [](const Tensor& x) { return wrap(x.sum(0)); }},
      {"cumsum", [](const Tensor& x) { return wrap(x.cumsum(-1)); }},
      {"flip", [](const Tensor& x) { return x.flip(0); }},
      {"sort",
       [](const Tensor& x) { return std::get<0>(x.sort(/*stable=*/std::optional(true), -1)); }},
      {"clone", [](const Tensor& x) { return x.clone(); }},
      {"double", [](const Tensor& x) { return x.to(at::kDouble); }},
      {"int", [](const Tensor& x) { return x.to(at::kInt); }},
      {"contiguous", [](const Tensor& x) { return x.contiguous(); }},
      {"amax", [](const Tensor& x) { return x.amax(-1, /*keepdim=*/true); }},
      {"nonzero", [](const Tensor& x) { return x.nonzero(); }},
      {"unique", [](const Tensor& x) { return std::get<0>(at::_unique2(x)); }},
      {"roll", [](const Tensor& x) { return x.roll(1, 0); }},
      {"tril", [](const Tensor& x) { return x.tril(); }},
      {"square", [](const Tensor& x) { return wrap(x.mul(x)); }},
      {"index",
       [](const Tensor& x) { return index(x, at::tensor({0, 0, 1}, at::kLong).to(x.device())); }},
      {"mask", [](const Tensor& x) { return index(x, x.gt(0)); }},
      {"mode", [](const Tensor& x) { return std::get<0>(x.mode(-1)); }},
      // Sparse, quantized and nested tensors.
      {"sparse", [](const Tensor& x) { return x.to_sparse().coalesce().to_dense(); }},
      {"csr", [](const Tensor& x) { return x.to_sparse_csr().to_dense(); }},
      {"quantize",
       [](const Tensor& x) {
         return at::quantize_per_tensor(x.to(at::kFloat), 1, 0, at::kQInt32).dequantize();
       }},
      // The tensor is large enough for a team of threads; the sum still fits into the 24 bits of a
      // float.
      {"large",
       [](const Tensor& x) {
         return wrap(wrap(at::arange(1 << 17, x.options()).add(wrap(x.sum()))).sum());
       }},
  };
  return table;
}

const Table<const Tensor&, const Tensor&>& changes() {
  static const Table<const Tensor&, const Tensor&> table{
      {"copy_", [](const Tensor& x, const Tensor& y) { return x.copy_(y); }},
      {"add_", [](const Tensor& x, const Tensor& y) { return x.add_(y).remainder_(97); }},
      {"sub_", [](const Tensor& x, const Tensor& y) { return x.sub_(y).remainder_(97); }},
      {"mul_", [](const Tensor& x, const Tensor& y) { return x.mul_(y).remainder_(97); }},
      {"out",
       [](const Tensor& x, const Tensor& y) {
         Tensor out = x;
         // If the shapes differed, torch would warn and resize x, and views of x would be out of
         // bounds.
         return x.sizes() == y.sizes() ? at::neg_out(out, y) : out;
       }},
      {"index_add_",
       [](const Tensor& x, const Tensor& y) { return x.index_add_(0, rows(y), y).remainder_(97); }},
      {"clamp_",
       [](const Tensor& x, const Tensor& y) {
         return x.clamp_(/*min=*/std::optional<Tensor>(), /*max=*/y);
       }},
      {"foreach",
       [](const Tensor& x, const Tensor& y) {
         at::_foreach_add_(at::TensorList(x), at::TensorList(y));
         return x.remainder_(97);
       }},
  };
  return table;
}

const Table<const Tensor&, int64_t>& changes_by_number() {
  static const Table<const Tensor&, int64_t> table{
      {"fill_", [](const Tensor& x, int64_t n) { return x.fill_(n); }},
      {"zero_", [](const Tensor& x, int64_t) { return x.zero_(); }},
      {"neg_", [](const Tensor& x, int64_t) { return x.neg_(); }},
      {"add", [](const Tensor& x, int64_t n) { return x.add_(n).remainder_(97); }},
      {"set",
       [](const Tensor& x, int64_t n) { return set(x, x.gt(n), at::full({}, n, x.options())); }},
      {"shrink",
       [](const Tensor& x, int64_t) { return x.is_contiguous() ? x.resize_({x.numel() / 2}) : x; }},
  };
  return table;
}

const Table<const Tensor&, const Tensor&>& swaps() {
  static const Table<const Tensor&, const Tensor&> table{
      // Only shrinks the tensor, because a larger one would have uninitialized elements.
      {"resize_",
       [](const Tensor& x, const Tensor&) { return x.clone().resize_({x.numel() / 2}); }},
      {"set_",
       [](const Tensor&, const Tensor& y) {
         const Tensor empty = at::empty({0}, y.options());
         return empty.set_(y);
       }},
      {"data",
       [](const Tensor& x, const Tensor& y) {
         const Tensor copy = x.clone();
         copy.set_data(y);
         return copy;
       }},
  };
  return table;
}

const Table<const Tensor&, const at::Generator&>& draws() {
  static const Table<const Tensor&, const at::Generator&> table{
      {"random_", [](const Tensor& x,
                     const at::Generator& g) { return at::empty_like(x).random_(-9, 10, g); }},
      {"bernoulli_", [](const Tensor& x,
                        const at::Generator& g) { return at::empty_like(x).bernoulli_(0.5, g); }},
      {"geometric_", [](const Tensor& x,
                        const at::Generator& g) { return at::empty_like(x).geometric_(0.5, g); }},
      {"randperm",
       [](const Tensor& x, const at::Generator& g) {
         return wrap(at::randperm(x.numel(), g, x.options().dtype(at::kLong)));
       }},
  };
  return table;
}

const Dtypes& dtypes() {
  static const Dtypes table{
      {"int64", at::kLong},
      {"float32", at::kFloat},
      {"float64", at::kDouble},
      {"int32", at::kInt},
  };
  return table;
}

}  // namespace openreg::programs
