// SPDX-License-Identifier: BSD-3-Clause
#include "aten/tensors/factories.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/scalar_tensor_native.h>
#include <ATen/ops/tril_indices_native.h>
#include <ATen/ops/triu_indices_native.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <utility>

#include "aten/tensors/scalar_width.h"
#include "aten/tensors/storage.h"
#include "runtime/c10/device_allocator.h"

namespace openreg {
namespace {

constexpr c10::DispatchKeySet kDeviceKeys(c10::DispatchKey::PrivateUse1);

// Returns the device for a factory call: the requested device, or else the current device.
c10::DeviceIndex device_of(std::optional<at::Device> device) {
  return resolve_device(device.has_value() ? device->index() : static_cast<c10::DeviceIndex>(-1));
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "openreg: expected layout torch.strided, but got ", *layout,
                              ", because this function creates only strided tensors");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

// Fills a new tensor if torch.use_deterministic_algorithms requires defined contents.
void fill_if_deterministic(at::Tensor& tensor) {
  const at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
}

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  at::Tensor result =
      empty_on(device_of(device), sizes, c10::dtype_or_default(dtype), memory_format);
  fill_if_deterministic(result);
  return result;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::Tensor result =
      empty_strided_on(device_of(device), sizes, strides, c10::dtype_or_default(dtype));
  fill_if_deterministic(result);
  return result;
}

// Creates a zero tensor without memory. Autograd uses such tensors for undefined tangents.
at::Tensor efficient_zero_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const auto type = caffe2::TypeMeta::fromScalarType(c10::dtype_or_default(dtype));
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * type.itemsize();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(nullptr, c10::Device(kOpenRegType, device_of(device))), device_allocator(),
      /*resizable=*/false));
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), kDeviceKeys.add(c10::DispatchKey::ZeroTensor), type);
  result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return result;
}

using IndicesKernel = at::Tensor (*)(int64_t, int64_t, int64_t, std::optional<at::ScalarType>,
                                     std::optional<at::Layout>, std::optional<at::Device>,
                                     std::optional<bool>);

// Implements tril_indices and triu_indices. The CPU kernels allocate their result themselves.
// Therefore they run during the call, and the result is copied to the device like other host data.
template <IndicesKernel kKernel>
at::Tensor indices(int64_t rows, int64_t columns, int64_t offset,
                   std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceIndex index = device_of(device);
  return kKernel(rows, columns, offset, dtype.value_or(at::kLong), layout, at::Device(at::kCPU),
                 false)
      .to(at::Device(kOpenRegType, index));
}

// Creates a 0-dim tensor. torch calls it with a Python scalar in x[i] = 2 or where(). If the dtype
// cannot represent the value, the CPU's function rounds it to infinity, while fill_() rejects it.
at::Tensor scalar_tensor(const at::Scalar& scalar, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const at::ScalarType type = dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
  at::Tensor result = empty_on(device_of(device), {}, type);
  if (width_of(scalar) == 0) {
    return result.fill_(scalar);
  }
  return result.fill_(at::native::scalar_tensor(scalar, type, at::kStrided, at::kCPU).item());
}

at::Tensor from_file(std::string_view filename, std::optional<bool> /*shared*/,
                     std::optional<int64_t> /*size*/, std::optional<at::ScalarType> /*dtype*/,
                     std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                     std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg: device memory cannot be mapped from the file '",
                              filename, "'; use torch.from_file(...).to(\"openreg\")");
}

}  // namespace

at::Tensor empty_on(c10::DeviceIndex device, at::IntArrayRef sizes, c10::ScalarType dtype,
                    std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(sizes);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, type.itemsize());
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      make_storage(allocate_on(device, bytes), bytes), kDeviceKeys, type);
  if (sizes.size() != 1 || sizes[0] != 0) {
    result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  if (memory_format.has_value() && *memory_format != c10::MemoryFormat::Contiguous) {
    result.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  return result;
}

at::Tensor empty_strided_on(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                            c10::ScalarType dtype) {
  at::detail::check_size_nonnegative(sizes);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      make_storage(allocate_on(device, bytes), bytes), kDeviceKeys, type);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  library.impl("tril_indices", TORCH_FN(indices<at::native::tril_indices_cpu>));
  library.impl("triu_indices", TORCH_FN(indices<at::native::triu_indices_cpu>));
  library.impl("scalar_tensor", TORCH_FN(scalar_tensor));
  library.impl("from_file", TORCH_FN(from_file));
}

}  // namespace openreg
