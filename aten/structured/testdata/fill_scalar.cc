// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/fill_native.h>
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

// fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)
namespace fill_scalar {

class Kernel {
 public:
  Kernel(AliasPool& aliases, at::Tensor& self, const at::Scalar& value)
      : self_(aliases, self), value_(aliases, value) {}
  std::nullptr_t result() const { return nullptr; }
  void run() { at::native::fill_(self_, value_); }

 private:
  Owned<at::Tensor&> self_;
  Owned<const at::Scalar&> value_;
};

at::Tensor& call(at::Tensor& self, const at::Scalar& value) {
  check_representable(self, value);
  Operands operands;
  operands.add_device(self);
  const LaunchSite site{.name = "aten::fill_.Scalar",
                        .cost = operands.numel(),
                        .argument_key = argument_key(width_of(value))};
  launch<Kernel>(site, operands.device(), self, value);
  return self;
}

}  // namespace fill_scalar

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("fill_.Scalar", TORCH_FN(fill_scalar::call)); }

}  // namespace openreg
