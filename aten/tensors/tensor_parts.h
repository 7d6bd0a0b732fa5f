// SPDX-License-Identifier: BSD-3-Clause
//
// Decomposes sparse, quantized and nested tensors into their parts and assembles tensors from
// parts. The parts are the strided tensors to which torch's objects refer, and they hold the data.
//
//   sparse COO                    indices, values
//   sparse CSR, CSC, BSR, BSC     compressed indices, plain indices, values
//   quantized                     the integers; per channel: scales, zero points
//   nested, strided layout        the buffer (sizes, strides and offsets are CPU tensors)
//
// A device tensor of one of these kinds is an object of the same class as on the CPU, but its parts
// are device tensors. (A nested tensor with jagged layout consists of strided tensors that Python
// code combines.) These functions copy no data except for the scales and zero points in
// set_parts(). Any thread may call these functions; the caller must synchronize changes to a
// tensor.
#ifndef ATEN_TENSORS_TENSOR_PARTS_H_
#define ATEN_TENSORS_TENSOR_PARTS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace openreg {

bool has_parts(const at::Tensor& tensor);

// Returns the parts themselves, not views of them. The exception is a quantized tensor, whose first
// part is an integer tensor over the same storage.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor);

// Returns a tensor that consists of these parts, on their device, and has the other properties of
// `like`.
at::Tensor make_from_parts(const at::Tensor& like, const std::vector<at::Tensor>& parts);

// For a sparse tensor, sets its parts, and its metadata to that of `like`. For a quantized tensor,
// keeps the memory and sets the quantizer to that of `like`, with the scales and zero points in
// `parts` moved to the device of `tensor`. Nested tensors never change.
void set_parts(const at::Tensor& tensor, const at::Tensor& like,
               const std::vector<at::Tensor>& parts);

}  // namespace openreg

#endif  // ATEN_TENSORS_TENSOR_PARTS_H_
