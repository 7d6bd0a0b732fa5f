// SPDX-License-Identifier: BSD-3-Clause
//
// The operators that every device needs, two device kernels (relu, normal_), and a fallback to the
// CPU for all other operators. They are stateless, and any thread may call them.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <utility>

#include "device.h"

namespace acme {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Makes the device in an optional argument the calling thread's current device during the lifetime
// of the object.
struct DeviceScope {
  explicit DeviceScope(std::optional<at::Device> device)
      : previous(exchange_device(device.has_value() ? device->index() : current_device)) {}
  ~DeviceScope() { current_device = previous; }
  c10::DeviceIndex previous;
};

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided && !pin_memory.value_or(false),
              "acme: expected torch.strided and no pinned memory, but got ",
              layout.value_or(at::kStrided), ", pin_memory=", pin_memory.value_or(false));
  const DeviceScope scope(device);
  return at::detail::empty_generic(sizes, allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pin_memory*/) {
  const DeviceScope scope(device);
  return at::detail::empty_strided_generic(sizes, strides, allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Returns a CPU tensor over the memory of a device tensor. A real device cannot do this: its driver
// copies the bytes, and either the host or the device converts layouts and dtypes.
at::Tensor host_view(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

// Implements all copies to, from and within the device. The dtype and the strides of `to` may
// differ from those of `from`.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
  const at::Tensor source = from.is_privateuseone() ? host_view(from) : from;
  at::Tensor target = to.is_privateuseone() ? host_view(to) : to;
  target.copy_(source);
  return to;
}

// The fallback writes its results with this operator. `to` is resized to the shape of `from`.
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

// Implements resize_. A storage that is too small is enlarged with the hook resizePrivateUse1Bytes.
// A tensor that already has these sizes keeps its strides.
const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  if (self.sizes() != sizes) {
    const size_t bytes = at::detail::computeStorageNbytesContiguous(
        sizes, self.element_size(), static_cast<size_t>(self.storage_offset()));
    if (bytes > self.storage().nbytes()) {
      at::native::resize_bytes_nocuda(self.storage(), static_cast<int64_t>(bytes));
    }
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  if (format.has_value()) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

// torch.load and copy.deepcopy use this operator to create tensors over storages.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.data() != nullptr) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {count}, {});
}

// Implements tensor.item().
at::Scalar item(const at::Tensor& self) { return host_view(self).item(); }

// An example of a device kernel. Such kernels replace the fallback, one operator at a time.
at::Tensor relu(const at::Tensor& self) {
  at::Tensor result = at::empty_like(self);
  host_view(result).copy_(host_view(self).clamp_min(0));  // driver: launch a kernel
  return result;
}

// Implements normal_ with random numbers from the generator argument or the device's default
// generator. CPU kernels reject both generators, so every random operator needs a device kernel.
at::Tensor& normal(at::Tensor& self, double mean, double deviation,
                   std::optional<at::Generator> given) {
  at::Generator generator =
      given.has_value() ? *given : at::globalContext().defaultGenerator(self.device());
  TORCH_CHECK(generator.device() == self.device(), "acme: expected a generator of ", self.device(),
              ", but got one of ", generator.device());
  const std::lock_guard lock(generator.mutex());
  at::normal_distribution<double> distribution(mean, deviation);
  at::Tensor drawn = at::empty(self.sizes(), at::kDouble);
  auto* const numbers = drawn.mutable_data_ptr<double>();
  for (int64_t i = 0; i < drawn.numel(); ++i) {
    numbers[i] = distribution(generator.get<at::CPUGeneratorImpl>());
  }
  return self.copy_(drawn);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(item));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
}

// Views share memory; the fallback would copy. torch's functions change only sizes and strides.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("relu", TORCH_FN(relu));
  library.impl("normal_", TORCH_FN(normal));
}

// Every other operator runs on the CPU.
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// torch.autocast casts nothing for this device.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace acme
