// SPDX-License-Identifier: BSD-3-Clause
//
// Performs dtype checks at launch that CPU kernels perform only when they run. Thus argument errors
// are thrown at the call, with torch's messages. Any thread may call these functions.
#ifndef ATEN_KERNELS_DTYPE_H_
#define ATEN_KERNELS_DTYPE_H_

#include <ATen/core/Tensor.h>
#include <ATen/native/cpu/mixed_data_type.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace openreg {

// Throws unless the tensor is floating-point. `kernel` is the kernel's name in torch's message.
inline void check_floating(const char* kernel, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(tensor.scalar_type()), '"', kernel,
                              "\" not implemented for '", c10::toString(tensor.scalar_type()), "'");
}

// Checks the parameters of a normalization, which may be float while the data has a reduced dtype.
// Returns the dtype of the statistics.
template <class... Parameters>
c10::ScalarType check_parameters(const at::Tensor& data, const Parameters&... parameters) {
  const bool mixed = at::native::is_mixed_type(data, parameters...);
  if (mixed) {
    at::native::check_mixed_data_type(data, parameters...);
  }
  return at::native::param_scalar_type(data, mixed);
}

}  // namespace openreg

#endif  // ATEN_KERNELS_DTYPE_H_
