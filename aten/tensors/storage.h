// SPDX-License-Identifier: BSD-3-Clause
//
// Creates storages for device tensors, and implements set_ and resize_ for quantized and strided
// tensors. Any thread may call these functions.
#ifndef ATEN_TENSORS_STORAGE_H_
#define ATEN_TENSORS_STORAGE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/c10/device_allocator.h"

namespace openreg {

// Returns a storage that owns `memory` of this size. The function is inline, because every new
// tensor calls it.
inline c10::Storage make_storage(c10::DataPtr memory, size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(memory), device_allocator(),
      /*resizable=*/true));
}

// Implements resize_. The storage never shrinks. If it grows, the current stream orders the copy.
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> memory_format);

// Implements set_.source_Storage_storage_offset. If `strides` is empty, the strides are contiguous.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides);

}  // namespace openreg

#endif  // ATEN_TENSORS_STORAGE_H_
