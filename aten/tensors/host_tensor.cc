// SPDX-License-Identifier: BSD-3-Clause
#include "aten/tensors/host_tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstring>
#include <utility>

namespace openreg {

at::Tensor empty_host_tensor_like(const at::Tensor& tensor) {
  at::Tensor host =
      at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

at::Tensor copy_host_tensor(const at::Tensor& tensor) {
  at::Tensor copy = empty_host_tensor_like(tensor);
  std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), copy.storage().nbytes());
  return copy;
}

at::Tensor view_storage(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                    like.storage_offset());
  view._set_conj(like.is_conj());
  view._set_neg(like.is_neg());
  return view;
}

at::Tensor view_host_memory(const at::Tensor& tensor) {
  // Leave inference mode, because kernels in other modes cannot use an inference tensor.
  const c10::InferenceMode normal(/*enabled=*/false);
  const c10::StorageImpl& source = *tensor.storage().unsafeGetStorageImpl();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), source.nbytes(),
      // There is no deleter, because the original tensor owns the memory.
      c10::DataPtr(source.data_ptr().get(), c10::Device(c10::kCPU)),
      /*allocator=*/nullptr, /*resizable=*/false));
  return view_storage(std::move(storage), c10::DispatchKey::CPU, tensor);
}

}  // namespace openreg
