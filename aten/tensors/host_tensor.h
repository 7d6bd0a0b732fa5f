// SPDX-License-Identifier: BSD-3-Clause
//
// CPU tensors that outlive a call. A queued kernel or copy runs when the caller's tensor may have
// changed or gone, and a worker must not drop the last reference to a tensor that Python knows.
// Threads: any.
#ifndef ATEN_TENSORS_HOST_TENSOR_H_
#define ATEN_TENSORS_HOST_TENSOR_H_

#include <ATen/core/Tensor.h>

namespace openreg {

// A CPU tensor with the metadata of `tensor`, which may be of the device, over memory of its own.
// Its elements are undefined; expanded dimensions are not written out.
at::Tensor empty_host_tensor_like(const at::Tensor& tensor);

// A copy of a CPU tensor in memory that nobody else has. Expanded dimensions are not written out.
at::Tensor copy_host_tensor(const at::Tensor& tensor);

// A tensor over `storage`, whose device `key` names, with the metadata of `like`.
at::Tensor view_storage(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like);

// Another tensor over the memory of a CPU tensor, which something else keeps alive. Its storage is
// its own, as large as the original's. Never an inference tensor.
at::Tensor view_host_memory(const at::Tensor& tensor);

}  // namespace openreg

#endif  // ATEN_TENSORS_HOST_TENSOR_H_
