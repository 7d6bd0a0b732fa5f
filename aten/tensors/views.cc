// SPDX-License-Identifier: BSD-3-Clause
//
// Views and metadata: new tensors over existing memory. None of these functions accesses memory, a
// stream or the driver: torch's CPU functions handle only sizes, strides and storages. They are
// registered for the device, because the boxed fallback would copy. Any thread may call them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "aten/tensors/tensor.h"
#include "aten/tensors/tensor_parts.h"
#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"

namespace openreg {
namespace {

// Returns whether `self` can adopt the contents of `from` and remain the same object. Module.to()
// moves parameters in this way, so that optimizers and lazy layers keep their references. torch's
// own check uses a list of backends without PrivateUse1, although strided tensors of the CPU and of
// the device are objects of the same class.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& tensor) {
    return (tensor.is_cpu() || is_device(tensor)) && !has_parts(tensor) &&
           !tensor.key_set().has(c10::DispatchKey::Python);
  };
  return (plain(self) && plain(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

void record_stream(at::Tensor& self, at::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace openreg
