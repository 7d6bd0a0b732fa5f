// SPDX-License-Identifier: BSD-3-Clause
//
// Creates device tensors for kernels, without reading or changing the current device. The contents
// of the tensors are undefined. factories.cc also implements the operators empty.memory_format,
// empty_strided and so on. Any thread may call these functions.
#ifndef ATEN_TENSORS_FACTORIES_H_
#define ATEN_TENSORS_FACTORIES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace openreg {

at::Tensor empty_on(c10::DeviceIndex device, at::IntArrayRef sizes, c10::ScalarType dtype,
                    std::optional<c10::MemoryFormat> memory_format = std::nullopt);

at::Tensor empty_strided_on(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            c10::ScalarType dtype);

}  // namespace openreg

#endif  // ATEN_TENSORS_FACTORIES_H_
