// SPDX-License-Identifier: BSD-3-Clause
//
// torch's functions for set_ and resize_ grow a storage with memcpy on the CPU. Here the hooks grow
// it with a copy in stream order (runtime/c10/hooks.cc). torch's _lazy_clone shares memory until
// either tensor is written. This does not work for this device: torch handles neither the device
// nor the streams of such memory, and throws an exception. Therefore the function in this file
// copies immediately.
#include "aten/tensors/storage.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/c10/device.h"

namespace openreg {
namespace {

c10::Storage make_empty_storage(c10::DeviceIndex device) {
  return make_storage(allocate_on(device, 0), 0);
}

// Grows the tensor's storage to at least this many bytes. Does nothing for 0 bytes.
void grow_storage(const at::Tensor& tensor, size_t bytes) {
  if (bytes == 0) {
    return;
  }
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const auto needed = static_cast<int64_t>(bytes);
  if (!impl->unsafe_storage()) {
    impl->set_storage_keep_dtype(make_empty_storage(tensor.get_device()));
  }
  if (needed > static_cast<int64_t>(impl->unsafe_storage().nbytes())) {
    at::native::resize_bytes_nocuda(impl->unsafe_storage(), needed);
  }
}

void check_device(const at::Tensor& self, const at::Storage& source) {
  TORCH_CHECK(source.device() == self.device(),
              "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
}

}  // namespace

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> memory_format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  at::detail::check_size_nonnegative(sizes);
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  if (self.sizes() != sizes) {
    // Grow the storage first: if this fails, the tensor stays unchanged.
    grow_storage(self,
                 std::find(sizes.begin(), sizes.end(), 0) != sizes.end()
                     ? 0
                     : at::detail::computeStorageNbytesContiguous(
                           sizes, self.element_size(), static_cast<size_t>(self.storage_offset())));
    impl->set_sizes_contiguous(sizes);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  const at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  check_device(self, source);
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.data() != nullptr) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  grow_storage(self, self.numel() == 0 ? 0
                                       : at::detail::computeStorageNbytes(
                                             self.sizes(), self.strides(), self.element_size(),
                                             static_cast<size_t>(self.storage_offset())));
  return self;
}

namespace {

// Implements set_.source_Storage: the tensor views the whole storage.
at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {count}, {});
}

// Implements set_() without a source: the tensor becomes empty and gets a new storage.
at::Tensor& set_nothing(at::Tensor& self) {
  return set_whole_storage(self, make_empty_storage(self.get_device()));
}

// Implements _lazy_clone: copies the whole storage and keeps the metadata.
at::Tensor lazy_clone(const at::Tensor& self) {
  const c10::Storage& source = self.storage();
  const DeviceScope scope(source.device().index());
  c10::DataPtr copy = device_allocator()->clone(source.data(), source.nbytes());
  auto impl = c10::make_intrusive<c10::TensorImpl>(make_storage(std::move(copy), source.nbytes()),
                                                   self.key_set(), self.dtype());
  impl->set_sizes_and_strides(self.sizes(), self.strides(), self.storage_offset());
  return at::Tensor(std::move(impl));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("set_", TORCH_FN(set_nothing));
  library.impl("_lazy_clone", TORCH_FN(lazy_clone));
}

}  // namespace openreg
