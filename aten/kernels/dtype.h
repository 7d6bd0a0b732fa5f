// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of dtypes that the kernels of the CPU make when they run, made when they are launched: an
// error of the arguments is thrown at the call, in torch's words. Threads: any.
#ifndef ATEN_KERNELS_DTYPE_H_
#define ATEN_KERNELS_DTYPE_H_

#include <ATen/core/Tensor.h>
#include <ATen/native/cpu/mixed_data_type.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace openreg {

// `kernel` is what torch calls its kernel in the message.
inline void check_floating(const char* kernel, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(tensor.scalar_type()), '"', kernel,
                              "\" not implemented for '", c10::toString(tensor.scalar_type()), "'");
}

// For normalizations, whose parameters may be float while the data is of a reduced type. Returns
// the dtype of statistics.
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
