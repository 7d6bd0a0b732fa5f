// SPDX-License-Identifier: BSD-3-Clause
//
// What the wrappers of generated kernels do with arguments before a launch: estimate its cost,
// throw what the kernel would throw later, bring lists of indices to the one form that needs no
// data on the host. operators.yaml names these functions. Tensors are device tensors unless said
// otherwise. Threads: any.
#ifndef ATEN_STRUCTURED_ARGUMENTS_H_
#define ATEN_STRUCTURED_ARGUMENTS_H_

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace openreg {

// Cost (launch.h) of the product of two matrices, or batches of these: a fused multiply-add of a
// vector does some ten elements in the time that a memory-bound loop takes for one. Anything for
// arguments that are no matrices: meta() refuses them.
int64_t matmul_cost(const at::Tensor& left, const at::Tensor& right);

// Whether the lists are of one length, not empty, and the i-th tensors of all of them have the same
// sizes and the same floating-point dtype, on a device of ours, and those of the first list can be
// written: then a kernel can go through the lists without a check.
bool uniform(std::initializer_list<at::TensorList> lists);

bool is_real(const at::Scalar& scalar);
bool is_real(at::ArrayRef<at::Scalar> scalars);

// Whether `factor` is one number of the tensors' own device and dtype.
bool is_factor(at::TensorList tensors, const at::Tensor& factor);

// Increments the version counters of the tensors, as one in-place operator for each of them would:
// not below ADInplaceOrView, and with torch's error for an inference tensor outside inference mode.
void count_writes(at::TensorList tensors);

// Throws unless the lists have the same length, sizes, floating-point dtypes and devices, those of
// `optional_lists` that are not empty too, and `steps` a counter for each tensor, if there are any.
void check_uniform(std::initializer_list<at::TensorList> lists,
                   std::initializer_list<at::TensorList> optional_lists, at::TensorList steps = {});

// Throws if one of them has no bits to speak of: numbers that are not integers.
void check_bits(const at::Tensor& self, const at::Tensor& other);

// Throws unless `self` has, or can be expanded to, the sizes of the product of two matrices. What
// is wrong with the matrices themselves is left to meta().
void check_bias(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2);

// Throws if one of them holds truth values.
void check_difference(const at::Tensor& self, const at::Tensor& other);

// Throws if the number does not fit the tensor's dtype.
void check_representable(const at::Tensor& self, const at::Scalar& value);

// Throws unless `value` has zero dimensions.
void check_0_dim(const at::Tensor& value);

// Throws unless the mask is one of bool that can be expanded to the tensor, and the value a number
// that its dtype takes.
void check_mask(const at::Tensor& self, const at::Tensor& mask, const at::Scalar& value);
void check_mask(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value);

// The indices as int64 tensors on the device of `self`. Masks become the indices of what they
// select, which waits for the device.
c10::List<std::optional<at::Tensor>> index_tensors(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

// The same for what is written: masks stay masks, since the shape of no result follows from them,
// and the kernel counts what they select.
c10::List<std::optional<at::Tensor>> written_indices(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

// Throws unless self[indices] = values is possible, as far as shapes tell. The indices are those of
// written_indices().
void check_index_put(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                     const at::Tensor& values);

}  // namespace openreg

#endif  // ATEN_STRUCTURED_ARGUMENTS_H_
