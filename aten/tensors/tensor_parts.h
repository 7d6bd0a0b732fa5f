// SPDX-License-Identifier: BSD-3-Clause
//
// Takes apart and assembles sparse, quantized and nested tensors: torch's objects refer to strided
// tensors (the parts), which hold the data.
//
//   sparse COO                    indices, values
//   sparse CSR, CSC, BSR, BSC     compressed indices, plain indices, values
//   quantized                     the integers; per channel: scales, zero points
//   nested, strided layout        the buffer (sizes, strides and offsets are CPU tensors)
//
// A device tensor of one of these kinds is the same type of object as on the CPU, but its parts are
// device tensors. (Nested tensors with jagged layout are composed of strided tensors in Python.)
// Nothing is copied here. Any thread may call these functions; the caller must synchronize changes
// to a tensor.
#ifndef ATEN_TENSORS_TENSOR_PARTS_H_
#define ATEN_TENSORS_TENSOR_PARTS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace openreg {

bool has_parts(const at::Tensor& tensor);

// Returns the parts themselves, not views of them, except for a quantized tensor, whose first part
// is an integer tensor over the same storage.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor);

// Returns a tensor with these parts on their device, and otherwise with the properties of `like`.
at::Tensor make_from_parts(const at::Tensor& like, const std::vector<at::Tensor>& parts);

// Sets the parts of a sparse tensor, and its metadata to that of `like`. Sets the quantizer of a
// quantized tensor to that of `like`, with the scales and zero points of the parts moved to its
// device, and keeps its memory. Nested tensors never change.
void set_parts(const at::Tensor& tensor, const at::Tensor& like,
               const std::vector<at::Tensor>& parts);

}  // namespace openreg

#endif  // ATEN_TENSORS_TENSOR_PARTS_H_
