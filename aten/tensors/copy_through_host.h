// SPDX-License-Identifier: BSD-3-Clause
//
// The copy kernel and the scalar reader for a device that has none of its own (copy.h). The driver
// copies bytes to the host and back. In between, torch's copy_ converts dtypes and layouts and
// broadcasts on the CPU. Only the bytes between the first and the last element of a tensor are
// copied. If the destination has gaps, it is read first, so that the gaps keep their contents. Any
// thread may call these functions.
#ifndef ATEN_TENSORS_COPY_THROUGH_HOST_H_
#define ATEN_TENSORS_COPY_THROUGH_HOST_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace openreg {

// A CopyKernel that copies through host memory.
void copy_through_host(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                       bool awaited);

// A ScalarReader that reads the element through host memory.
at::Scalar read_scalar_through_host(const at::Tensor& self);

}  // namespace openreg

#endif  // ATEN_TENSORS_COPY_THROUGH_HOST_H_
