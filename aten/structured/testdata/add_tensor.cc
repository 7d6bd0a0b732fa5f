// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/add_native.h>
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

// add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
namespace add_tensor {

template <OutputKind kKind>
class Kernel {
 public:
  template <class... Outputs>
  Kernel(AliasPool& aliases, c10::DeviceIndex device, const at::Tensor& self,
         const at::Tensor& other, const at::Scalar& alpha, const Outputs&... outputs)
      : self_(aliases, self), other_(aliases, other), alpha_(aliases, alpha), op_(aliases, device) {
    if constexpr (kKind == OutputKind::kInplace) {
      op_.give_output(0, self, self_);
    } else {
      op_.give_outputs(outputs...);
    }
    op_.meta(self_, other_, alpha_);
  }
  auto result() { return op_.take_outputs(); }
  int64_t iterations() const { return op_.iterations(); }
  static constexpr bool kPointwise = true;
  void run() {
    op_.impl(self_, other_, alpha_, op_.maybe_get_output(0));
    op_.finish();
  }
  void repeat() {
    const typename decltype(op_)::KeptOperands kept(op_);
    run();
  }

 private:
  Owned<const at::Tensor&> self_;
  Owned<const at::Tensor&> other_;
  Owned<const at::Scalar&> alpha_;
  StructuredKernel<at::native::structured_ufunc_add_CPU, 1, kKind> op_;
};

template <OutputKind kKind>
class Converting {
 public:
  Converting(AliasPool& aliases, const at::Tensor& self, const at::Tensor& other,
             const at::Scalar& alpha, const at::Tensor& out)
      : self_(aliases, self),
        other_(aliases, other),
        alpha_(aliases, alpha),
        out_(kKind == OutputKind::kInplace ? *self_.value : aliases.alias(out)) {}
  std::nullptr_t result() const { return nullptr; }
  void run() { at::cpu::add_outf(self_, other_, alpha_, out_); }

 private:
  Owned<const at::Tensor&> self_;
  Owned<const at::Tensor&> other_;
  Owned<const at::Scalar&> alpha_;
  at::Tensor out_;
};

class Pointwise final : public PointwiseKernel<at::native::structured_ufunc_add_CPU, 2> {
 public:
  Pointwise(AliasPool& /*aliases*/, const FastPath<2>& fast_path, const at::Tensor& output,
            const at::Scalar& alpha)
      : PointwiseKernel(fast_path, output), alpha_(alpha) {}
  void run() { impl(none_, none_, alpha_, none_); }

 private:
  const at::Scalar alpha_;
};

at::Tensor functional(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (const FastPath<2> fast_path(self, other); fast_path.eligible() && is_plain(alpha)) {
    const bool serial = fast_path.numel() <= kSerialIterations;
    const LaunchSite site{"aten::add.Tensor", fast_path.numel(), false, serial};
    at::Tensor result = fast_path.make_output(fast_path.dtype());
    launch<Pointwise>(site, fast_path.device(), fast_path, result, alpha);
    return result;
  }
  Operands operands;
  operands.add(self);
  operands.add(other);
  operands.add_scalar(alpha);
  const bool converts = operands.mixes();
  const LaunchSite site{.name = "aten::add.Tensor",
                        .cost = operands.numel(),
                        .argument_key = argument_key(width_of(alpha))};
  if (converts) {
    StructuredMeta<at::meta::structured_add_Tensor, 1, OutputKind::kFunctional> op(
        operands.device());
    op.meta(self, other, alpha);
    launch<Converting<OutputKind::kFunctional>>(site, operands.device(), self, other, alpha,
                                                op.output(0));
    return op.output(0);
  }
  return launch<Kernel<OutputKind::kFunctional>>(site, operands.device(), operands.device(), self,
                                                 other, alpha);
}

at::Tensor& inplace(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (const FastPath<2> fast_path(self, other); fast_path.eligible_inplace() && is_plain(alpha)) {
    const bool serial = fast_path.numel() <= kSerialIterations;
    const LaunchSite site{"aten::add_.Tensor", fast_path.numel(), false, serial};
    launch<Pointwise>(site, fast_path.device(), fast_path, self, alpha);
    return self;
  }
  Operands operands;
  operands.add_device(self);
  operands.add(other);
  operands.add_scalar(alpha);
  const bool converts = operands.mixes();
  const LaunchSite site{.name = "aten::add_.Tensor",
                        .cost = operands.numel(),
                        .argument_key = argument_key(width_of(alpha))};
  if (converts) {
    StructuredMeta<at::meta::structured_add_Tensor, 1, OutputKind::kInplace> op(operands.device());
    op.give_outputs(self);
    op.meta(self, other, alpha);
    launch<Converting<OutputKind::kInplace>>(site, operands.device(), self, other, alpha,
                                             op.output(0));
    return self;
  }
  launch<Kernel<OutputKind::kInplace>>(site, operands.device(), operands.device(), self, other,
                                       alpha);
  return self;
}

at::Tensor& out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                at::Tensor& out) {
  Operands operands;
  operands.add(self);
  operands.add(other);
  operands.add_scalar(alpha);
  const bool converts = operands.mixes();
  operands.add_device(out);
  const LaunchSite site{.name = "aten::add.out",
                        .cost = operands.numel(),
                        .argument_key = argument_key(width_of(alpha))};
  if (converts) {
    StructuredMeta<at::meta::structured_add_Tensor, 1, OutputKind::kOut> op(operands.device());
    op.give_outputs(out);
    op.meta(self, other, alpha);
    launch<Converting<OutputKind::kOut>>(site, operands.device(), self, other, alpha, op.output(0));
    return out;
  }
  launch<Kernel<OutputKind::kOut>>(site, operands.device(), operands.device(), self, other, alpha,
                                   out);
  return out;
}

}  // namespace add_tensor

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("add.Tensor", TORCH_FN(add_tensor::functional));
  m.impl("add_.Tensor", TORCH_FN(add_tensor::inplace));
  m.impl("add.out", TORCH_FN(add_tensor::out));
}

}  // namespace openreg
