// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that generated wrappers call before a launch. They estimate the launch's cost, throw
// errors that the kernel would throw later, and convert lists of indices to a form that needs no
// data on the host. operators.yaml refers to these functions. Tensors are device tensors unless
// noted otherwise. Any thread may call these functions.
#ifndef ATEN_STRUCTURED_ARGUMENTS_H_
#define ATEN_STRUCTURED_ARGUMENTS_H_

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace openreg {

// Returns the cost (launch.h) of the product of two matrices or batches of matrices. A vector fused
// multiply-add processes about ten elements in the time that a memory-bound loop needs for one. If
// the arguments are not matrices, the value is arbitrary, because meta() rejects them.
int64_t matmul_cost(const at::Tensor& left, const at::Tensor& right);

// Returns whether a kernel can process the lists without checks. This requires that the lists have
// the same nonzero length, that all tensors are on one openreg device, that the i-th tensors of all
// lists have the same sizes and floating-point dtype, and that the tensors of the first list can be
// written.
bool uniform(std::initializer_list<at::TensorList> lists);

// Returns whether, for lists that are uniform(), one call per tensor costs less than a single
// launch. Each such call uses the fast path (pointwise.h) and runs inline. The single launch also
// runs inline, but needs an alias for each tensor.
bool is_faster_apart(std::initializer_list<at::TensorList> lists);

bool is_real(const at::Scalar& scalar);
bool is_real(at::ArrayRef<at::Scalar> scalars);

// Returns whether `factor` is a 0-dim tensor with the tensors' device and dtype.
bool is_factor(at::TensorList tensors, const at::Tensor& factor);

// Increments the version counters of the tensors, as an in-place operator on each of them would.
// Accordingly, it has no effect below ADInplaceOrView, and it throws torch's error for an inference
// tensor outside of inference mode.
void count_writes(at::TensorList tensors);

// Throws unless the lists and the nonempty `optional_lists` have the same length, sizes,
// floating-point dtypes and devices, and `steps` is empty or has one counter per tensor.
void check_uniform(std::initializer_list<at::TensorList> lists,
                   std::initializer_list<at::TensorList> optional_lists, at::TensorList steps = {});

// Throws unless both tensors have an integer or bool dtype.
void check_bits(const at::Tensor& self, const at::Tensor& other);

// Throws unless `self` can be expanded to the sizes of the product of two matrices. Errors in the
// matrices themselves are thrown by meta().
void check_bias(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2);

// Throws if `self` or `other` has dtype bool.
void check_difference(const at::Tensor& self, const at::Tensor& other);

// Throws if the tensor's dtype cannot represent the value.
void check_representable(const at::Tensor& self, const at::Scalar& value);

// Throws unless `value` is 0-dim.
void check_0_dim(const at::Tensor& value);

// Throws unless the mask is a bool tensor that can be expanded to the tensor, and the tensor's
// dtype can represent the value.
void check_mask(const at::Tensor& self, const at::Tensor& mask, const at::Scalar& value);
void check_mask(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value);

// Returns the indices as int64 tensors on the device of `self`. Masks are converted to indices,
// which waits for the device.
c10::List<std::optional<at::Tensor>> index_tensors(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

// Returns the indices of the elements to write, in the same form as index_tensors(), except that
// masks are kept: no result shape depends on the masks, and the kernel counts the selected
// elements.
c10::List<std::optional<at::Tensor>> written_indices(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

// Throws unless the shapes allow self[indices] = values. `indices` must come from
// written_indices().
void check_index_put(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                     const at::Tensor& values);

}  // namespace openreg

#endif  // ATEN_STRUCTURED_ARGUMENTS_H_
