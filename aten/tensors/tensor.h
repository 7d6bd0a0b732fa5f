// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that query properties of tensors, for the packages in //aten. Any thread may call them.
#ifndef ATEN_TENSORS_TENSOR_H_
#define ATEN_TENSORS_TENSOR_H_

#include <ATen/core/Tensor.h>

#include "runtime/c10/device.h"

namespace openreg {

inline bool is_device(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->device_type() == kOpenRegType;
}

}  // namespace openreg

#endif  // ATEN_TENSORS_TENSOR_H_
