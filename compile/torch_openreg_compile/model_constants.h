// SPDX-License-Identifier: BSD-3-Clause
//
// model_constants.h - places the constants of an ahead-of-time compiled model in device memory.
//
// torch's code around a model stores some constants in one block of memory: those that are part of
// the library, and those that must be copied. For each, it calls memcpy(place, source, bytes) and
// then creates a tensor from `place`. For devices other than torch's own, this block is in host
// memory. Therefore the memcpy in this file only records the source and does not write to `place`.
// When a device tensor is created, it gets its own memory, to which the source is copied on the
// current stream. Constants on the CPU are handled as in torch.
//
// This file must be included before torch's headers. The recorded source is thread-local.
#ifndef TORCH_OPENREG_COMPILE_MODEL_CONSTANTS_H_
#define TORCH_OPENREG_COMPILE_MODEL_CONSTANTS_H_

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" bool openreg_kernel_address(const void* data, uint64_t* word);  // aten/aoti/launch.cc

namespace openreg_generated {

struct ConstantCopy {
  void* place = nullptr;
  const void* source = nullptr;
  size_t bytes = 0;
};

inline thread_local ConstantCopy noted_copy;

// Owns the tensor of a handle.
class ConstantTensor {
 public:
  ConstantTensor() = default;
  ~ConstantTensor() {
    if (handle != nullptr) {
      (void)aoti_torch_delete_tensor_object(handle);
    }
  }
  ConstantTensor(const ConstantTensor&) = delete;
  ConstantTensor& operator=(const ConstantTensor&) = delete;

  AtenTensorHandle handle = nullptr;
};

inline AOTITorchError create_constant(void* data, int64_t ndim, const int64_t* sizes,
                                      const int64_t* strides, int64_t offset, int32_t dtype,
                                      int32_t device_type, int32_t device, AtenTensorHandle* result,
                                      int32_t layout, const uint8_t* metadata,
                                      int64_t metadata_size) {
  const ConstantCopy copy =
      noted_copy.place == data && data != nullptr ? noted_copy : ConstantCopy();
  noted_copy = {};
  if (device_type != aoti_torch_device_type_privateuse1()) {
    if (copy.place != nullptr) {
      std::memcpy(copy.place, copy.source, copy.bytes);
    }
    return aoti_torch_create_tensor_from_blob_v2(data, ndim, sizes, strides, offset, dtype,
                                                 device_type, device, result, layout, metadata,
                                                 metadata_size);
  }
  if (copy.bytes == 0) {
    return aoti_torch_empty_strided(ndim, sizes, strides, dtype, device_type, device, result);
  }
  // Copy all elements of the storage, even those that are not in the tensor's view.
  uint64_t word = 0;
  const bool on_device = openreg_kernel_address(copy.source, &word);
  const auto elements = static_cast<int64_t>(copy.bytes / aoti_torch_dtype_element_size(dtype));
  const int64_t one = 1;
  ConstantTensor source;
  ConstantTensor target;
  AOTITorchError error = aoti_torch_create_tensor_from_blob(
      const_cast<void*>(copy.source), 1, &elements, &one, 0, dtype,
      on_device ? device_type : aoti_torch_device_type_cpu(), on_device ? device : 0,
      &source.handle);
  if (error == AOTI_TORCH_SUCCESS) {
    error =
        aoti_torch_empty_strided(1, &elements, &one, dtype, device_type, device, &target.handle);
  }
  if (error == AOTI_TORCH_SUCCESS) {
    error = aoti_torch_copy_(target.handle, source.handle, 0);
  }
  return error != AOTI_TORCH_SUCCESS
             ? error
             : aoti_torch__reinterpret_tensor(target.handle, ndim, sizes, strides, offset, result);
}

// Creates a strided constant. There are two overloads, because torch's headers call either of them.
inline AOTITorchError create_constant(void* data, int64_t ndim, const int64_t* sizes,
                                      const int64_t* strides, int64_t offset, int32_t dtype,
                                      int32_t device_type, int32_t device,
                                      AtenTensorHandle* result) {
  return create_constant(data, ndim, sizes, strides, offset, dtype, device_type, device, result,
                         aoti_torch_layout_strided(), nullptr, 0);
}

}  // namespace openreg_generated

namespace torch::aot_inductor {

[[maybe_unused]] static void* memcpy(void* place, const void* source, size_t bytes) {
  openreg_generated::noted_copy = {place, source, bytes};
  return place;
}

}  // namespace torch::aot_inductor

#define aoti_torch_create_tensor_from_blob openreg_generated::create_constant
#define aoti_torch_create_tensor_from_blob_v2 openreg_generated::create_constant

#endif  // TORCH_OPENREG_COMPILE_MODEL_CONSTANTS_H_
