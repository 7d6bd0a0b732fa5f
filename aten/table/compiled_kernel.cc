// SPDX-License-Identifier: BSD-3-Clause
//
// Rejects generated kernels: the minimal driver can run only the kernels in its table.
#include "aten/launch/compiled_kernel.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace openreg {
namespace {

[[noreturn]] void refuse() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "openreg: the driver of this build cannot run generated kernels: "
                              "use torch.compile with backend=\"openreg\" or \"aot_eager\"");
}

}  // namespace

void launch_compiled(const CompiledKernel& /*kernel*/, c10::DeviceIndex /*device*/,
                     int64_t /*cost*/, const void* /*arguments*/, size_t /*bytes*/) {
  refuse();
}

const void* compiled_operand(const at::Tensor& /*tensor*/, bool /*written*/,
                             c10::DeviceIndex& /*device*/) {
  refuse();
}

at::Tensor compiled_result(c10::DeviceIndex /*device*/, at::IntArrayRef /*sizes*/,
                           at::IntArrayRef /*strides*/, c10::ScalarType /*dtype*/) {
  refuse();
}

}  // namespace openreg
