// SPDX-License-Identifier: BSD-3-Clause
//
// Launches kernels that torch's compiler has generated (compile/), in the same way as operator
// kernels.
//
// The extension module calls these functions. Any thread may call them; each thread has its own
// current streams.
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
  const char* name;              // in static storage
  bool parallel;                 // whether the kernel has parallel regions
  bool pointwise;                // whether the result is independent of the number of threads
  void (*run)(void* arguments);  // must not modify the arguments; may throw
};

// Queues kernel.run() with a copy of the `bytes` bytes at `arguments` on the current stream of
// `device`. launch.h explains the meaning of `cost`.
OPENREG_API void launch_compiled(const CompiledKernel& kernel, c10::DeviceIndex device,
                                 int64_t cost, const void* arguments, size_t bytes);

// Returns the kernel address of the elements of `tensor`, or null for a read-only CPU operand with
// one element. Throws for any other tensor that is not on `device`, the device of the previous
// operands. `device` is initially -1; the first operand on a device sets it.
OPENREG_API const void* compiled_operand(const at::Tensor& tensor, bool written,
                                         c10::DeviceIndex& device);

// Allocates a result like empty_strided, but without the dispatcher.
OPENREG_API at::Tensor compiled_result(c10::DeviceIndex device, at::IntArrayRef sizes,
                                       at::IntArrayRef strides, c10::ScalarType dtype);

}  // namespace openreg

#endif  // ATEN_LAUNCH_COMPILED_KERNEL_H_
