// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/host_arguments.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <cstddef>

#include "aten/tensors/factories.h"
#include "aten/tensors/host_tensor.h"
#include "aten/tensors/tensor.h"
#include "aten/tensors/tensor_parts.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

// The dispatch keys of a tensor that select a kernel below autograd.
constexpr c10::DispatchKeySet kKernelKeys =
    c10::backend_functionality_keys | c10::DispatchKeySet(c10::DispatchKey::NestedTensor);

}  // namespace

void materialize_lazy_bits(const at::Tensor& host, bool conj, bool neg) {
  if (host.is_conj() == conj && host.is_neg() == neg) {
    return;
  }
  const at::Tensor values = host.resolve_conj().resolve_neg();
  host._set_conj(conj);
  host._set_neg(neg);
  host.copy_(values);
}

at::Tensor HostArguments::to_host(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) {
    return tensor;
  }
  const at::Tensor host = is_device(tensor) ? device_to_host(tensor, written) : tensor;
  // Some kernels save the data for their gradient only if an argument requires grad.
  if (tensor.requires_grad() && !host.requires_grad()) {
    host.set_requires_grad(true);
  }
  keys_ = keys_ | (host.key_set() & kKernelKeys);
  return host;
}

at::Tensor HostArguments::device_to_host(const at::Tensor& tensor, bool written) {
  const auto known =
      std::find_if(arguments_.begin(), arguments_.end(),
                   [&](const Argument& argument) { return argument.tensor.is_same(tensor); });
  if (known == arguments_.end()) {
    return has_parts(tensor) ? parts_to_host(tensor, written) : strided_to_host(tensor, written);
  }
  const auto parts = static_cast<std::ptrdiff_t>(known->has_parts ? parts_of(tensor).size() : 0);
  std::for_each(known - parts, known + 1, [&](Argument& one) { one.written |= written; });
  return known->host;
}

at::Tensor HostArguments::strided_to_host(const at::Tensor& tensor, bool written) {
  at::Tensor host =
      alias_ ? alias_(tensor)
             : view_storage(copy_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
  arguments_.push_back(
      {tensor, host, written, at::DimVector(host.sizes()), host.storage().data(), false});
  return host;
}

at::Tensor HostArguments::parts_to_host(const at::Tensor& tensor, bool written) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : parts_of(tensor)) {
    parts.push_back(strided_to_host(part, written));
  }
  at::Tensor host = make_from_parts(tensor, parts);
  // device_to_host() relies on this order: the entry of the tensor directly follows those of its
  // parts.
  arguments_.push_back({tensor, host, written, {}, nullptr, true});
  return host;
}

const c10::Storage& HostArguments::copy_storage(const c10::Storage& storage) {
  for (const Copied& copied : copied_in_) {
    if (copied.device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      return copied.host;
    }
  }
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  const at::Tensor memory = at::detail::empty_cpu({bytes}, at::kByte);
  if (bytes != 0) {
    // This copy returns only when it has finished, because the host memory is pageable.
    OPENREG_CHECK(orMemcpyAsync(memory.mutable_data_ptr(), storage.data(), storage.nbytes(),
                                orMemcpyDeviceToHost, current_native_stream(device_)));
  }
  bytes_in_ += storage.nbytes();
  return copied_in_.emplace_back(Copied{storage, memory.storage()}).host;
}

bool HostArguments::resized() const {
  return std::any_of(arguments_.begin(), arguments_.end(), [](const Argument& argument) {
    return !argument.has_parts && argument.host.sizes() != argument.sizes;
  });
}

void HostArguments::finish() {
  for (const Argument& argument : arguments_) {
    if (argument.has_parts) {
      follow_parts(argument);
      continue;
    }
    materialize_lazy_bits(argument.host, argument.tensor.is_conj(), argument.tensor.is_neg());
    if (argument.host.sizes() != argument.sizes ||
        argument.host.storage().data() != argument.data) {
      follow_resize(argument);
    } else if (argument.written && !alias_) {
      write_back(argument);
    }
  }
}

// Copies the elements of the host tensor, and any gaps between them, to the device tensor.
void HostArguments::write_back(const Argument& argument) {
  const at::Tensor& host = argument.host;
  const size_t bytes =
      at::detail::computeStorageNbytes(host.sizes(), host.strides(), host.element_size());
  if (bytes == 0) {
    return;
  }
  OPENREG_CHECK(orMemcpyAsync(argument.tensor.mutable_data_ptr(), host.const_data_ptr(), bytes,
                              orMemcpyHostToDevice, current_native_stream(device_)));
  bytes_out_ += bytes;
}

// Resizes the device tensor to the sizes of its host tensor. If the kernel allocated new CPU
// memory, copies the data to the device storage, which grows if necessary.
void HostArguments::follow_resize(const Argument& argument) {
  const at::Tensor& tensor = argument.tensor;
  const at::Tensor& host = argument.host;
  const size_t bytes = host.storage().nbytes();
  if (tensor.storage().nbytes() < bytes) {
    at::native::resize_bytes_nocuda(tensor.storage(), static_cast<int64_t>(bytes));
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(),
                                                      host.storage_offset());
  if (!alias_ || host.storage().data() != argument.data) {
    write_back(argument);
  }
}

// Updates a sparse argument on the device with the indices, values and sizes that the kernel wrote.
void HostArguments::follow_parts(const Argument& argument) {
  if (!argument.written) {
    return;
  }
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : parts_of(argument.host)) {
    parts.push_back(to_device(part));
  }
  set_parts(argument.tensor, argument.host, parts);
}

at::Tensor HostArguments::to_device(const at::Tensor& result) {
  if (!result.defined() || !result.is_cpu()) {
    return result;
  }
  for (const Argument& argument : arguments_) {
    if (argument.host.is_same(result)) {
      return argument.tensor;
    }
  }
  if (has_parts(result)) {
    return parts_to_device(result);
  }
  for (const Argument& argument : arguments_) {
    if (!argument.has_parts && argument.host.storage().is_alias_of(result.storage())) {
      return view_storage(argument.tensor.storage(), c10::DispatchKey::PrivateUse1, result);
    }
  }
  return copy_to_device(result);
}

at::Tensor HostArguments::parts_to_device(const at::Tensor& result) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : parts_of(result)) {
    parts.push_back(to_device(part));
  }
  return make_from_parts(result, parts);
}

// Copies whole storages, so that all strides are preserved, including those of expanded and
// overlapping tensors. Results that share memory on the host share it on the device, too.
at::Tensor HostArguments::copy_to_device(const at::Tensor& result) {
  const c10::StorageImpl* const source = result.storage().unsafeGetStorageImpl();
  const auto known = std::find_if(copied_out_.begin(), copied_out_.end(),
                                  [&](const auto& copied) { return copied.first == source; });
  if (known != copied_out_.end()) {
    return view_storage(known->second, c10::DispatchKey::PrivateUse1, result);
  }
  const auto bytes = static_cast<int64_t>(source->nbytes());
  const at::Tensor memory = empty_on(device_, {bytes}, at::kByte);
  if (bytes != 0) {
    // Copy in stream order, because other threads may have queued work that still uses this memory.
    OPENREG_CHECK(orMemcpyAsync(memory.mutable_data_ptr(), source->data(), source->nbytes(),
                                orMemcpyHostToDevice, current_native_stream(device_)));
  }
  bytes_out_ += source->nbytes();
  copied_out_.emplace_back(source, memory.storage());
  return view_storage(memory.storage(), c10::DispatchKey::PrivateUse1, result);
}

}  // namespace openreg
