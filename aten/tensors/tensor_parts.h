// SPDX-License-Identifier: BSD-3-Clause
//
// Sparse, quantized and nested tensors: torch's objects around strided tensors, their parts, which
// hold the data.
//
//   sparse COO                    indices, values
//   sparse CSR, CSC, BSR, BSC     compressed indices, plain indices, values
//   quantized                     the integers; per channel: scales, zero points
//   nested, strided layout        the buffer (sizes, strides and offsets are tensors of the CPU)
//
// A device tensor of one of these kinds is the same object as the CPU's, around device tensors.
// (Nested tensors of jagged layout are made in Python, of strided tensors.) Nothing is copied here.
// Threads: any; those that change a tensor are the caller's to order.
#ifndef ATEN_TENSORS_TENSOR_PARTS_H_
#define ATEN_TENSORS_TENSOR_PARTS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace openreg {

bool has_parts(const at::Tensor& tensor);

// The strided tensors: themselves, not views of them, except the integers of a quantized tensor,
// which are a tensor of an integer dtype over the same storage.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor);

// A tensor around these parts, otherwise like `like`, on the CPU or on the device, where they are.
at::Tensor make_from_parts(const at::Tensor& like, const std::vector<at::Tensor>& parts);

// Gives a sparse tensor these parts, and the rest of what `like` is; a quantized one the quantizer
// of `like`, with scales and zero points of these parts on its own device, while its memory stays.
// A nested tensor never changes.
void set_parts(const at::Tensor& tensor, const at::Tensor& like,
               const std::vector<at::Tensor>& parts);

}  // namespace openreg

#endif  // ATEN_TENSORS_TENSOR_PARTS_H_
