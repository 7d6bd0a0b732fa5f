// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add_native.h>
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

// _foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()
namespace foreach_add_scalar {

class Kernel {
 public:
  Kernel(AliasPool& aliases, at::TensorList self, const at::Scalar& scalar)
      : self_(aliases, self), scalar_(aliases, scalar) {}
  std::nullptr_t result() const { return nullptr; }
  void run() { at::native::foreach_tensor_add_scalar_kernel_slow_(self_, scalar_); }

 private:
  Owned<at::TensorList> self_;
  Owned<const at::Scalar&> scalar_;
};

void call(at::TensorList self, const at::Scalar& scalar) {
  if (!(uniform({self}) && is_real(scalar))) {
    return at::native::foreach_tensor_add_scalar_kernel_slow_(self, scalar);
  }
  Operands operands;
  operands.add_device(self);
  const LaunchSite site{.name = "aten::_foreach_add_.Scalar",
                        .cost = operands.numel(),
                        .pointwise = true,
                        .loops = static_cast<int64_t>(self.size()),
                        .argument_key = argument_key(width_of(scalar))};
  count_writes(self);
  launch<Kernel>(site, operands.device(), self, scalar);
}

}  // namespace foreach_add_scalar

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_foreach_add_.Scalar", TORCH_FN(foreach_add_scalar::call));
}

}  // namespace openreg
