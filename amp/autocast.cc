// SPDX-License-Identifier: BSD-3-Clause
//
// Autocast for device openreg. It determines which operators run in lower precision, in float32, or
// in the widest dtype of their arguments.
//
// The lists and the wrappers are torch's own lists and wrappers for device cuda. Therefore a model
// behaves in the same way on both devices, and a new torch release updates the lists here, too. An
// operator that is in no list is not intercepted: it runs in the dtype of its arguments.
// docs/amp.md shows how a vendor changes the policy of a single operator.
//
// There is no header, because loading the library registers the kernels. They are stateless: torch
// stores the enabled flag and dtype of each thread, and the cache of cast weights.

#include <ATen/autocast_mode.h>

namespace openreg {
namespace {

using at::Tensor;

// Throws an error, as on cuda. The reason is that float16 rounds inputs to 0 and 1, where the loss
// and its gradient are infinite. Casting to float32 does not help, because the backward pass would
// cast the gradient back.
Tensor RejectBinaryCrossEntropy(const Tensor& /*self*/, const Tensor& /*target*/,
                                const std::optional<Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
      "In this case, combine the two layers using "
      "torch.nn.functional.binary_cross_entropy_with_logits\n"
      "or torch.nn.BCEWithLogitsLoss. binary_cross_entropy_with_logits and BCEWithLogitsLoss are\n"
      "safe to autocast. Otherwise compute it with float32 inputs inside "
      "torch.autocast(\"openreg\", enabled=False)");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using at::IntArrayRef;
  using at::Scalar;
  using at::ScalarType;
#define OPENREG_LOWER_PRECISION_FP(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define OPENREG_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define OPENREG_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define OPENREG_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(OPENREG_LOWER_PRECISION_FP)
  AT_FORALL_FP32(OPENREG_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(OPENREG_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(OPENREG_PROMOTE)
  m.impl("binary_cross_entropy", RejectBinaryCrossEntropy);
#undef OPENREG_LOWER_PRECISION_FP
#undef OPENREG_FP32
#undef OPENREG_FP32_SET_OPT_DTYPE
#undef OPENREG_PROMOTE
}

}  // namespace
}  // namespace openreg
