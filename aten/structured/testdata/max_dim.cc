// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/max_native.h>
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

// max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
namespace max_dim {

template <OutputKind kKind>
class Kernel {
 public:
  template <class... Outputs>
  Kernel(AliasPool& aliases, c10::DeviceIndex device, const at::Tensor& self, int64_t dim,
         bool keepdim, const Outputs&... outputs)
      : self_(aliases, self), dim_(aliases, dim), keepdim_(aliases, keepdim), op_(aliases, device) {
    op_.give_outputs(outputs...);
    precomputed_ = op_.meta(self_, dim_, keepdim_);
  }
  auto result() { return op_.take_outputs(); }
  template <class... Arguments>
  static uint64_t overlaps(const Arguments&... arguments)
    requires(kKind == OutputKind::kOut)
  {
    return output_overlaps<2>(arguments...);
  }
  void run() {
    op_.impl(self_, precomputed_.dim, keepdim_, op_.maybe_get_output(0), op_.maybe_get_output(1));
    op_.finish();
  }

 private:
  Owned<const at::Tensor&> self_;
  Owned<int64_t> dim_;
  Owned<bool> keepdim_;
  StructuredKernel<at::native::structured_max_out, 2, kKind> op_;
  at::meta::structured_max_dim::meta_return_ty precomputed_;
};

std::tuple<at::Tensor, at::Tensor> functional(const at::Tensor& self, int64_t dim, bool keepdim) {
  Operands operands;
  operands.add_device(self);
  const LaunchSite site{.name = "aten::max.dim", .cost = operands.numel()};
  return launch<Kernel<OutputKind::kFunctional>>(site, operands.device(), operands.device(), self,
                                                 dim, keepdim);
}

std::tuple<at::Tensor&, at::Tensor&> out(const at::Tensor& self, int64_t dim, bool keepdim,
                                         at::Tensor& max, at::Tensor& max_values) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(max);
  operands.add_device(max_values);
  const LaunchSite site{.name = "aten::max.dim_max", .cost = operands.numel()};
  launch<Kernel<OutputKind::kOut>>(site, operands.device(), operands.device(), self, dim, keepdim,
                                   max, max_values);
  return std::tie(max, max_values);
}

}  // namespace max_dim

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("max.dim", TORCH_FN(max_dim::functional));
  m.impl("max.dim_max", TORCH_FN(max_dim::out));
}

}  // namespace openreg
