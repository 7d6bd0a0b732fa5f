// SPDX-License-Identifier: BSD-3-Clause
#include "aten/tensors/copy_through_host.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>

#include <cstddef>
#include <cstdint>

#include "aten/tensors/copy.h"
#include "aten/tensors/host_tensor.h"
#include "aten/tensors/tensor.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

void copy_bytes(c10::DeviceIndex device, void* dst, const void* src, size_t bytes) {
  OPENREG_CHECK(orMemcpyAsync(dst, src, bytes, orMemcpyDefault, current_native_stream(device)));
}

// Returns the number of bytes from the beginning of the first element to the end of the last.
size_t extent(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
}

// Copies a device tensor to a new CPU tensor. The copy has finished when the function returns,
// because the memory is pageable.
at::Tensor read(c10::DeviceIndex device, const at::Tensor& tensor) {
  at::Tensor host = empty_host_tensor_like(tensor);
  copy_bytes(device, host.mutable_data_ptr(), tensor.const_data_ptr(), extent(tensor));
  return host;
}

}  // namespace

void copy_through_host(c10::DeviceIndex device, const at::Tensor& dst, const at::Tensor& src,
                       bool /*awaited*/) {
  if (same_elements(dst, src) && dst.is_contiguous() && src.is_contiguous()) {
    copy_bytes(device, dst.mutable_data_ptr(), src.const_data_ptr(), dst.nbytes());
    return;
  }
  // This thread accesses the CPU tensor, so earlier work on the stream must have finished.
  if (!is_device(src) || !is_device(dst)) {
    synchronize_stream(current_native_stream(device));
  }
  const at::Tensor from = is_device(src) ? read(device, src) : src;
  if (!is_device(dst)) {
    dst.copy_(from);
    return;
  }
  const at::Tensor to =
      dst.is_non_overlapping_and_dense() ? empty_host_tensor_like(dst) : read(device, dst);
  to.copy_(from);
  copy_bytes(device, dst.mutable_data_ptr(), to.const_data_ptr(), extent(dst));
}

at::Scalar read_scalar_through_host(const at::Tensor& self) {
  return at::native::_local_scalar_dense_cpu(read(self.get_device(), self));
}

}  // namespace openreg
