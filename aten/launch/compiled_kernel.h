// SPDX-License-Identifier: BSD-3-Clause
//
// Kernels that torch's compiler generated (compile/), launched as those of operators are.
//
// The extension module calls these below Python. Threads: any; each has its own current streams.
#ifndef ATEN_LAUNCH_COMPILED_KERNEL_H_
#define ATEN_LAUNCH_COMPILED_KERNEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg {

struct CompiledKernel {
  const char* name;              // static storage
  bool parallel;                 // it has parallel regions
  bool pointwise;                // no number of the result depends on how many threads compute it
  void (*run)(void* arguments);  // leaves the arguments as they are; may throw
};

// Queues kernel.run(a copy of `bytes` bytes at `arguments`) on the current stream of `device`.
// `cost` as in launch.h.
OPENREG_API void launch_compiled(const CompiledKernel& kernel, c10::DeviceIndex device,
                                 int64_t cost, const void* arguments, size_t bytes);

// Where kernels see the elements of `tensor`. `device` is that of the kernel's operands so far, -1
// at first, and is set by the first one. Null for an operand on the CPU, of one element that is
// only read. Throws for any other tensor.
OPENREG_API const void* compiled_operand(const at::Tensor& tensor, bool written,
                                         c10::DeviceIndex& device);

// A tensor for a result: what empty_strided does without going through the dispatcher.
OPENREG_API at::Tensor compiled_result(c10::DeviceIndex device, at::IntArrayRef sizes,
                                       at::IntArrayRef strides, c10::ScalarType dtype);

}  // namespace openreg

#endif  // ATEN_LAUNCH_COMPILED_KERNEL_H_
