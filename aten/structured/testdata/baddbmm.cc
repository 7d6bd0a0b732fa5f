// SPDX-License-Identifier: BSD-3-Clause
//
// Written by aten/structured/generate.py from templates/ and operators.yaml; change those instead.
#include <ATen/core/Tensor.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_native.h>
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

// baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
namespace baddbmm {

template <OutputKind kKind>
class Converting {
 public:
  Converting(AliasPool& aliases, const at::Tensor& self, const at::Tensor& batch1,
             const at::Tensor& batch2, const at::Scalar& beta, const at::Scalar& alpha,
             const at::Tensor& out)
      : self_(aliases, self),
        batch1_(aliases, batch1),
        batch2_(aliases, batch2),
        beta_(aliases, beta),
        alpha_(aliases, alpha),
        out_(kKind == OutputKind::kInplace ? *self_.value : aliases.alias(out)) {}
  std::nullptr_t result() const { return nullptr; }
  template <class... Arguments>
  static uint64_t overlaps(const Arguments&... arguments)
    requires(kKind != OutputKind::kFunctional)
  {
    return output_overlaps<1>(arguments...);
  }
  void run() { at::cpu::baddbmm_outf(self_, batch1_, batch2_, beta_, alpha_, out_); }

 private:
  Owned<const at::Tensor&> self_;
  Owned<const at::Tensor&> batch1_;
  Owned<const at::Tensor&> batch2_;
  Owned<const at::Scalar&> beta_;
  Owned<const at::Scalar&> alpha_;
  at::Tensor out_;
};

at::Tensor functional(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                      const at::Scalar& beta, const at::Scalar& alpha) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(batch1);
  operands.add_device(batch2);
  operands.add_scalar(beta);
  operands.add_scalar(alpha);
  const LaunchSite site{.name = "aten::baddbmm",
                        .cost = matmul_cost(batch1, batch2),
                        .argument_key = argument_key(width_of(beta), width_of(alpha))};
  StructuredMeta<at::meta::structured_baddbmm, 1, OutputKind::kFunctional> op(operands.device());
  op.meta(self, batch1, batch2, beta, alpha);
  launch<Converting<OutputKind::kFunctional>>(site, operands.device(), self, batch1, batch2, beta,
                                              alpha, op.output(0));
  return op.output(0);
}

at::Tensor& inplace(at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                    const at::Scalar& beta, const at::Scalar& alpha) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(batch1);
  operands.add_device(batch2);
  operands.add_scalar(beta);
  operands.add_scalar(alpha);
  const LaunchSite site{.name = "aten::baddbmm_",
                        .cost = matmul_cost(batch1, batch2),
                        .argument_key = argument_key(width_of(beta), width_of(alpha))};
  StructuredMeta<at::meta::structured_baddbmm, 1, OutputKind::kInplace> op(operands.device());
  op.give_outputs(self);
  op.meta(self, batch1, batch2, beta, alpha);
  launch<Converting<OutputKind::kInplace>>(site, operands.device(), self, batch1, batch2, beta,
                                           alpha, op.output(0));
  return self;
}

at::Tensor& out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  Operands operands;
  operands.add_device(self);
  operands.add_device(batch1);
  operands.add_device(batch2);
  operands.add_scalar(beta);
  operands.add_scalar(alpha);
  operands.add_device(out);
  const LaunchSite site{.name = "aten::baddbmm.out",
                        .cost = matmul_cost(batch1, batch2),
                        .argument_key = argument_key(width_of(beta), width_of(alpha))};
  StructuredMeta<at::meta::structured_baddbmm, 1, OutputKind::kOut> op(operands.device());
  op.give_outputs(out);
  op.meta(self, batch1, batch2, beta, alpha);
  launch<Converting<OutputKind::kOut>>(site, operands.device(), self, batch1, batch2, beta, alpha,
                                       op.output(0));
  return out;
}

}  // namespace baddbmm

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("baddbmm", TORCH_FN(baddbmm::functional));
  m.impl("baddbmm_", TORCH_FN(baddbmm::inplace));
  m.impl("baddbmm.out", TORCH_FN(baddbmm::out));
}

}  // namespace openreg
