// SPDX-License-Identifier: BSD-3-Clause
//
// Creates CPU tensors that can outlive a call. They are needed because the caller may change or
// free its own tensor before a queued kernel or copy runs, and because a worker must not drop the
// last reference to a tensor that has a Python object. Any thread may call these functions.
#ifndef ATEN_TENSORS_HOST_TENSOR_H_
#define ATEN_TENSORS_HOST_TENSOR_H_

#include <ATen/core/Tensor.h>

namespace openreg {

// Returns a new CPU tensor with the metadata of `tensor`, which may be a device tensor. The
// elements are undefined. Expanded dimensions stay expanded.
at::Tensor empty_host_tensor_like(const at::Tensor& tensor);

// Returns a copy of a CPU tensor in new memory. Expanded dimensions stay expanded.
at::Tensor copy_host_tensor(const at::Tensor& tensor);

// Returns a tensor over `storage` with the metadata of `like`. `key` must match the device of
// `storage`.
at::Tensor view_storage(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like);

// Returns another tensor over the memory of a CPU tensor. The caller must keep the memory alive.
// The result has its own storage object of the same size, and is never an inference tensor.
at::Tensor view_host_memory(const at::Tensor& tensor);

}  // namespace openreg

#endif  // ATEN_TENSORS_HOST_TENSOR_H_
