// SPDX-License-Identifier: BSD-3-Clause
#include "aten/structured/arguments.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/IListRef.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/IndexingUtils.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "aten/launch/launch.h"

namespace openreg {
namespace {

constexpr int64_t kMultiplyAddsPerCost = 8;

// Returns whether two tensors can be processed together: same device, dtype and sizes.
bool same_kind(const at::Tensor& left, const at::Tensor& right) {
  return right.defined() && left.device() == right.device() &&
         left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes();
}

bool same_kinds(at::TensorList left, at::TensorList right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), same_kind);
}

// Returns the sizes of self[indices]. The common shape of all indices replaces the indexed
// dimensions if these are adjacent; otherwise it comes first.
at::DimVector indexed_sizes(const at::Tensor& self,
                            const c10::List<std::optional<at::Tensor>>& indices) {
  at::DimVector common;
  at::DimVector before;
  at::DimVector after;
  bool seen = false;
  bool ended = false;
  bool apart = false;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    const std::optional<at::Tensor> index = dim < static_cast<int64_t>(indices.size())
                                                ? indices.get(static_cast<size_t>(dim))
                                                : std::nullopt;
    if (index.has_value() && index->defined()) {
      TORCH_CHECK_INDEX(
          at::are_expandable(common, index->sizes()),
          "shape mismatch: indexing tensors could not be broadcast together with shapes ",
          at::IntArrayRef(common), ", ", index->sizes());
      common = at::infer_size_dimvector(common, index->sizes());
      apart |= ended;
      seen = true;
    } else {
      ended |= seen;
      (seen ? after : before).push_back(self.size(dim));
    }
  }
  at::DimVector sizes;
  if (!apart) {
    sizes.append(before.begin(), before.end());
  }
  sizes.append(common.begin(), common.end());
  if (apart) {
    sizes.append(before.begin(), before.end());
  }
  sizes.append(after.begin(), after.end());
  return sizes;
}

// Returns whether one of the indices is a mask. Throws if a mask's shape does not match the indexed
// dimensions.
bool has_masks(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  bool found = false;
  int64_t dim = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (!index.has_value() || !index->defined() || index->scalar_type() != at::kBool) {
      ++dim;
      continue;
    }
    found = true;
    for (int64_t place = 0; place < index->dim(); ++place, ++dim) {
      if (index->size(place) != self.size(dim)) {
        at::native::invalid_mask(self, dim, *index, place);
      }
    }
  }
  return found;
}

void check_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  if (C10_UNLIKELY(mask.sizes() != self.sizes())) {
    const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), mask.sizes());
    TORCH_CHECK(self.sizes() == sizes, "output with shape ", self.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(sizes));
  }
  at::assert_no_partial_overlap(self, mask);
}

// A tensor in one of several lists, by the index of the list and its index in the list.
struct Place {
  size_t list;
  size_t tensor;
};

// Returns the first place where the lists differ in their length or in the sizes, floating-point
// dtypes or devices of their tensors. Returns nullopt if the lists fit together.
std::optional<Place> find_misfit(std::initializer_list<at::TensorList> lists) {
  const at::TensorList first = *lists.begin();
  if (first.empty()) {
    return Place{0, 0};
  }
  for (size_t list = 0; list < lists.size(); ++list) {
    const at::TensorList tensors = lists.begin()[list];
    if (tensors.size() != first.size()) {
      return Place{list, std::min(tensors.size(), first.size())};
    }
    for (size_t i = 0; i < first.size(); ++i) {
      const bool fits = list == 0 ? first[i].defined() && first[i].is_privateuseone() &&
                                        c10::isFloatingType(first[i].scalar_type())
                                  : same_kind(first[i], tensors[i]);
      if (!fits) {
        return Place{list, i};
      }
    }
  }
  return std::nullopt;
}

// Describes a place that find_misfit() has returned.
std::string describe_misfit(std::initializer_list<at::TensorList> lists, const Place& place) {
  const at::TensorList first = *lists.begin();
  if (first.empty()) {
    return "there are no parameters";
  }
  const at::TensorList list = lists.begin()[place.list];
  if (list.size() != first.size()) {
    return c10::str("list ", place.list, " has ", list.size(), " tensors and list 0 has ",
                    first.size());
  }
  const auto describe = [](const at::Tensor& tensor) {
    return tensor.defined() ? c10::str(tensor.scalar_type(), " of size ", tensor.sizes(), " on ",
                                       tensor.device())
                            : std::string("undefined");
  };
  return c10::str("tensor ", place.tensor, " of list ", place.list, " is ",
                  describe(list[place.tensor]), " and its parameter is ",
                  describe(first[place.tensor]));
}

// Returns whether CPU kernels allow each tensor in the first list to be written while its
// counterpart in the second list is read.
bool can_write(at::TensorList written, at::TensorList read) {
  return std::equal(written.begin(), written.end(), read.begin(),
                    [](const at::Tensor& out, const at::Tensor& in) {
                      return at::has_internal_overlap(out) != at::MemOverlap::Yes &&
                             at::get_overlap_status(out, in) != at::MemOverlapStatus::Partial;
                    });
}

}  // namespace

int64_t matmul_cost(const at::Tensor& left, const at::Tensor& right) {
  const int64_t columns = right.dim() > 0 ? right.sizes().back() : 1;
  return left.numel() + right.numel() + left.numel() * columns / kMultiplyAddsPerCost;
}

bool uniform(std::initializer_list<at::TensorList> lists) {
  const at::TensorList first = *lists.begin();
  const auto is_near = [&](const at::Tensor& tensor) {
    return tensor.device() == first[0].device();
  };
  const auto can_write_first = [&](at::TensorList list) { return can_write(first, list); };
  return !find_misfit(lists).has_value() && std::all_of(first.begin(), first.end(), is_near) &&
         std::all_of(lists.begin(), lists.end(), can_write_first);
}

bool is_faster_apart(std::initializer_list<at::TensorList> lists) {
  int64_t elements = 0;
  for (const at::TensorList list : lists) {
    for (const at::Tensor& tensor : list) {
      const c10::ScalarType dtype = tensor.scalar_type();
      elements += tensor.numel();
      if ((dtype != c10::kFloat && dtype != c10::kDouble) || !tensor.is_contiguous() ||
          tensor.is_neg() || elements >= kInlineCost) {
        return false;
      }
    }
  }
  return true;
}

bool is_real(const at::Scalar& scalar) { return !scalar.isComplex(); }

bool is_real(at::ArrayRef<at::Scalar> scalars) {
  return std::all_of(scalars.begin(), scalars.end(),
                     [](const at::Scalar& scalar) { return is_real(scalar); });
}

bool is_factor(at::TensorList tensors, const at::Tensor& factor) {
  return factor.dim() == 0 && factor.device() == tensors[0].device() &&
         std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
           return tensor.scalar_type() == factor.scalar_type();
         });
}

void count_writes(at::TensorList tensors) {
  if (c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView)) {
    return;
  }
  for (const at::Tensor& tensor : tensors) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void check_uniform(std::initializer_list<at::TensorList> lists,
                   std::initializer_list<at::TensorList> optional_lists, at::TensorList steps) {
  const at::TensorList first = *lists.begin();
  const std::optional<Place> misfit = find_misfit(lists);
  TORCH_CHECK(
      !misfit.has_value(),
      "Expected a fused optimizer's lists of parameters (list 0), gradients and states to have the "
      "same length, and each parameter's gradient and states to have its size, floating-point "
      "dtype and device, but ",
      describe_misfit(lists, *misfit));
  for (const at::TensorList list : optional_lists) {
    TORCH_CHECK(
        list.empty() || same_kinds(first, list),
        "Expected the states of a fused optimizer to have the sizes, dtypes and devices of its ",
        first.size(), " parameters");
  }
  TORCH_CHECK(steps.empty() || steps.size() == first.size(), "Expected ", first.size(),
              " step counters of a fused optimizer, but found ", steps.size());
}

void check_bias(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2) {
  if (mat1.dim() != 2 || mat2.dim() != 2 || mat1.size(1) != mat2.size(0) ||
      (self.dim() == 1 && self.size(0) == mat2.size(1))) {
    return;
  }
  (void)self.expand({mat1.size(0), mat2.size(1)}, /*implicit=*/true);
}

void check_difference(const at::Tensor& self, const at::Tensor& other) {
  at::native::sub_check(self, other);
}

void check_bits(const at::Tensor& self, const at::Tensor& other) {
  for (const at::Tensor* const tensor : {&self, &other}) {
    TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(tensor->scalar_type(), /*includeBool=*/true),
                                "bitwise operators are not implemented for '",
                                tensor->scalar_type(), "'");
  }
}

void check_representable(const at::Tensor& self, const at::Scalar& value) {
  AT_DISPATCH_V2(self.scalar_type(), "fill", AT_WRAP([&] { (void)value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 AT_EXPAND(AT_FLOAT8_TYPES), at::kComplexHalf, at::kHalf, at::kBool, at::kBFloat16);
}

void check_0_dim(const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
}

void check_mask(const at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  check_mask(self, mask);
  check_representable(self, value);
}

void check_mask(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  check_mask(self, mask);
  if (value.is_cpu()) {
    check_representable(self, value.item());
  }
}

namespace {

void check_index_count(const at::Tensor& self,
                       const c10::List<std::optional<at::Tensor>>& indices) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
}

// Returns the indices on the device of `self`. Indices on the host are copied to the device.
c10::List<std::optional<at::Tensor>> move_indices(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  c10::List<std::optional<at::Tensor>> here;
  here.reserve(indices.size());
  for (const std::optional<at::Tensor>& index : indices.vec()) {
    if (!index.has_value() || !index->defined() || index->device() == self.device()) {
      here.push_back(index);
    } else {
      TORCH_CHECK(index->is_cpu(),
                  "indices should be either on cpu or on the same device as the "
                  "indexed tensor (",
                  self.device(), "), but found ", index->device());
      here.push_back(index->to(self.device()));
    }
  }
  return here;
}

// Returns whether a kernel accepts all indices unchanged. `masks` specifies whether the kernel
// accepts bool indices too.
bool are_ready(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
               bool masks) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (index.has_value() && index->defined() &&
        !((index->scalar_type() == at::kLong || (masks && index->scalar_type() == at::kBool)) &&
          index->device() == self.device())) {
      return false;
    }
  }
  return true;
}

}  // namespace

c10::List<std::optional<at::Tensor>> index_tensors(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  check_index_count(self, indices);
  if (C10_LIKELY(are_ready(self, indices, /*masks=*/false))) {
    return indices;
  }
  c10::List<std::optional<at::Tensor>> expanded;
  for (const at::Tensor& index : at::native::expandTensors(self, move_indices(self, indices))) {
    expanded.push_back(index.defined() ? std::optional<at::Tensor>(index.to(at::kLong))
                                       : std::nullopt);
  }
  return expanded;
}

c10::List<std::optional<at::Tensor>> written_indices(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  check_index_count(self, indices);
  if (C10_LIKELY(are_ready(self, indices, /*masks=*/true))) {
    return indices;
  }
  c10::List<std::optional<at::Tensor>> here = move_indices(self, indices);
  for (size_t i = 0; i < here.size(); ++i) {
    const std::optional<at::Tensor> index = here.get(i);
    if (index.has_value() && index->defined() && index->scalar_type() == at::kByte) {
      // This is the warning that torch's expandTensors() prints.
      TORCH_WARN(
          "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
          "instead.");
      here.set(i, index->to(at::kBool));
    }
    if (index.has_value() && index->defined() && index->scalar_type() == at::kInt) {
      here.set(i, index->to(at::kLong));
    }
  }
  return here;
}

void check_index_put(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                     const at::Tensor& values) {
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  at::assert_no_overlap(self, values);
  for (const std::optional<at::Tensor>& index : indices.vec()) {
    if (index.has_value() && index->defined()) {
      at::assert_no_overlap(self, *index);
    }
  }
  if (has_masks(self, indices)) {
    return;  // the number of selected elements is not known yet
  }
  const at::DimVector sizes = indexed_sizes(self, indices);
  TORCH_CHECK(at::is_expandable_to(values.sizes(), sizes), "shape mismatch: value tensor of shape ",
              values.sizes(), " cannot be broadcast to indexing result of shape ",
              at::IntArrayRef(sizes));
}

}  // namespace openreg
