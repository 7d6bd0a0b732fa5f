// SPDX-License-Identifier: BSD-3-Clause
//
// Which storage a device tensor has, and how large it is: set_ and resize_, which quantized tensors
// share with plain ones. Threads: any.
#ifndef ATEN_STORAGE_H_
#define ATEN_STORAGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace openreg {

// resize_. The storage grows in the order of the current stream, and never shrinks.
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> memory_format);

// set_.source_Storage_storage_offset. Without strides: contiguous ones.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides);

}  // namespace openreg

#endif  // ATEN_STORAGE_H_
