// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm_native.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>
#include <tuple>

#include "aten/launch/argument_key.h"
#include "aten/launch/launch.h"
#include "aten/launch/owned.h"
#include "aten/structured/arguments.h"
#include "aten/structured/pointwise.h"
#include "aten/structured/structured.h"

namespace openreg {
namespace {

// mm(Tensor self, Tensor mat2) -> Tensor
namespace mm {

template <OutputKind kKind>
class Kernel {
 public:
  template <class... Outputs>
  Kernel(AliasPool& aliases, c10::DeviceIndex device, const at::Tensor& self,
         const at::Tensor& mat2, const Outputs&... outputs)
      : self_(aliases, self), mat2_(aliases, mat2), op_(aliases, device) {
    op_.give_outputs(outputs...);
    op_.meta(self_, mat2_);
  }
  auto result() { return op_.take_outputs(); }
  template <class... Arguments>
  static uint64_t overlaps(const Arguments&... arguments)
    requires(kKind == OutputKind::kOut)
  {
    return output_overlaps<1>(arguments...);
  }
  void run() {
    op_.impl(self_, mat2_, op_.maybe_get_output(0));
    op_.finish();
  }

 private:
  Owned<const at::Tensor&> self_;
  Owned<const at::Tensor&> mat2_;
  StructuredKernel<at::native::structured_mm_out_cpu, 1, kKind> op_;
};

at::Tensor functional(const at::Tensor& self, const at::Tensor& mat2) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  const LaunchSite site{.name = "aten::mm", .cost = matmul_cost(self, mat2)};
  return launch<Kernel<OutputKind::kFunctional>>(site, operands.device(), operands.device(), self,
                                                 mat2);
}

at::Tensor& out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(mat2);
  operands.add_device(out);
  const LaunchSite site{.name = "aten::mm.out", .cost = matmul_cost(self, mat2)};
  launch<Kernel<OutputKind::kOut>>(site, operands.device(), operands.device(), self, mat2, out);
  return out;
}

}  // namespace mm

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm", TORCH_FN(mm::functional));
  m.impl("mm.out", TORCH_FN(mm::out));
}

}  // namespace openreg
