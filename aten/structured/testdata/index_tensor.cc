// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/index_native.h>
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

// index.Tensor(Tensor self, Tensor?[] indices) -> Tensor
namespace index_tensor {

template <OutputKind kKind>
class Kernel {
 public:
  template <class... Outputs>
  Kernel(AliasPool& aliases, c10::DeviceIndex device, const at::Tensor& self,
         const c10::List<std::optional<at::Tensor>>& indices, const Outputs&... outputs)
      : self_(aliases, self), indices_(aliases, indices), op_(aliases, device) {
    op_.give_outputs(outputs...);
    precomputed_ = op_.meta(self_, indices_);
  }
  auto result() { return op_.take_outputs(); }
  int64_t iterations() const { return op_.iterations(); }
  static constexpr bool kPointwise = true;
  void run() {
    op_.impl(self_, precomputed_.sizes, precomputed_.strides, op_.maybe_get_output(0));
    op_.finish();
  }
  void repeat() {
    const typename decltype(op_)::KeptOperands kept(op_);
    run();
  }

 private:
  Owned<const at::Tensor&> self_;
  Owned<const c10::List<std::optional<at::Tensor>>&> indices_;
  StructuredKernel<at::native::structured_index_out, 1, kKind> op_;
  at::meta::structured_index_Tensor::meta_return_ty precomputed_;
};

at::Tensor functional(const at::Tensor& self,
                      const c10::List<std::optional<at::Tensor>>& indices_given) {
  const c10::List<std::optional<at::Tensor>> indices = index_tensors(self, indices_given);
  Operands operands;
  operands.add(self);
  operands.add(indices);
  const LaunchSite site{.name = "aten::index.Tensor", .cost = operands.numel() * 4};
  return launch<Kernel<OutputKind::kFunctional>>(site, operands.device(), operands.device(), self,
                                                 indices);
}

at::Tensor& out(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices_given,
                at::Tensor& out) {
  const c10::List<std::optional<at::Tensor>> indices = index_tensors(self, indices_given);
  Operands operands;
  operands.add(self);
  operands.add(indices);
  operands.add_device(out);
  const LaunchSite site{.name = "aten::index.Tensor_out", .cost = operands.numel() * 4};
  launch<Kernel<OutputKind::kOut>>(site, operands.device(), operands.device(), self, indices, out);
  return out;
}

}  // namespace index_tensor

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", TORCH_FN(index_tensor::functional));
  m.impl("index.Tensor_out", TORCH_FN(index_tensor::out));
}

}  // namespace openreg
