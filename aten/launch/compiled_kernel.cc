// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/compiled_kernel.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "aten/launch/alias.h"
#include "aten/launch/launch.h"
#include "aten/tensors/factories.h"
#include "runtime/c10/device.h"

namespace openreg {
namespace {

// Stores a generated kernel and its arguments. The kernel calls no operators.
class CompiledClosure {
 public:
  static constexpr bool kLeaf = true;

  CompiledClosure(AliasPool& /*aliases*/, void (*run)(void*), const void* arguments, size_t bytes)
      : run_(run) {
    if (bytes > sizeof(inside_)) {
      outside_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    }
    std::memcpy(place(), arguments, bytes);
  }
  void run() { run_(place()); }
  std::nullptr_t result() const { return nullptr; }

 private:
  std::byte* place() { return outside_ != nullptr ? outside_.get() : inside_; }

  void (*run_)(void*);
  std::unique_ptr<std::byte[]> outside_;
  alignas(16) std::byte inside_[1024];
};

}  // namespace

void launch_compiled(const CompiledKernel& kernel, c10::DeviceIndex device, int64_t cost,
                     const void* arguments, size_t bytes) {
  // A cost below kParallelCost keeps a kernel without parallel regions off the executor.
  const LaunchSite site{.name = kernel.name,
                        .cost = kernel.parallel ? cost : std::min(cost, kParallelCost - 1),
                        .serial = !kernel.parallel,
                        .pointwise = kernel.parallel && kernel.pointwise};
  launch<CompiledClosure>(site, device, kernel.run, arguments, bytes);
}

const void* compiled_operand(const at::Tensor& tensor, bool written, c10::DeviceIndex& device) {
  if (C10_LIKELY(is_device(tensor) && (device < 0 || tensor.device().index() == device))) {
    device = tensor.device().index();
    return kernel_pointer(written ? tensor.mutable_data_ptr() : tensor.const_data_ptr());
  }
  TORCH_CHECK(tensor.is_cpu() && tensor.numel() == 1 && !written, "a compiled kernel for ",
              c10::Device(kOpenRegType, device), " cannot ", written ? "write to" : "read",
              " a tensor on ", tensor.device(), " with sizes ", tensor.sizes(), ": move it to ",
              c10::Device(kOpenRegType, device),
              " (only a tensor with one element may be read from the CPU)");
  return nullptr;
}

at::Tensor compiled_result(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                           c10::ScalarType dtype) {
  return empty_strided_on(resolve_device(device), sizes, strides, dtype);
}

}  // namespace openreg
