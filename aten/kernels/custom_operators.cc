// SPDX-License-Identifier: BSD-3-Clause
//
// Custom operators, torch.ops.openreg.*, in the way in which a vendor adds them in C++. Their names
// and gradients are those of PyTorch's in-tree torch_openreg. docs/custom_operators.md explains
// each registration and shows the same operators in Python. Any thread may call these operators.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/abs_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/launch/cpu_kernel.h"

namespace openreg {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Meta: creates the result without computing its values. The function does not read the input's
// values, so it works for all devices.
at::Tensor abs_meta(const at::Tensor& input) {
  return at::empty_like(input, input.options().dtype(c10::toRealValueType(input.scalar_type())));
}

// PrivateUse1: queues the kernel. The result exists when the call returns; the kernel writes its
// values later.
at::Tensor abs_device(const at::Tensor& input) {
  at::Tensor out = abs_meta(input);
  const c10::DeviceIndex device = input.device().index();
  launch_cpu({"openreg::custom_abs", input.numel()}, device, &at::cpu::abs_outf, input, out);
  return out;
}

// Calls the operator from a kernel with a higher priority than the device's kernel. The call goes
// through the dispatcher, so that the layers in between (tracing, fake tensors, a Python mode) are
// applied.
at::Tensor custom_abs(const at::Tensor& input) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("openreg::custom_abs", "")
                                    .typed<at::Tensor(const at::Tensor&)>();
  return operation.call(input);
}

// AutogradPrivateUse1, AutogradMeta: runs the forward below autograd and saves the tensors for the
// backward.
struct Abs : torch::autograd::Function<Abs> {
  static constexpr bool is_traceable = true;  // because backward reads only saved values

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    context->save_for_backward({input});
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return custom_abs(input);
  }
  // Calls differentiable operators, so that the backward is differentiable as well.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].mul(context->get_saved_variables()[0].sgn())};
  }
};

at::Tensor abs_autograd(const at::Tensor& input) { return Abs::apply(input); }

// AutocastPrivateUse1: the float32 policy. This kernel runs above autograd, so autograd records the
// cast and casts the gradient back.
at::Tensor abs_autocast(const at::Tensor& input) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  return custom_abs(c10::isReducedFloatingType(input.scalar_type()) ? input.to(at::kFloat) : input);
}

// Returns the input or a view of it, and halves its gradient. The operator needs no device kernel:
// the function is composed of operators that every device has, and is called above autograd
// (CompositeImplicitAutograd). torch detects that the result is a view that the function does not
// track, and rejects in-place modifications of it.
template <at::Tensor (*kForward)(const at::Tensor&)>
struct HalfGradient : torch::autograd::Function<HalfGradient<kForward>> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& input) {
    return kForward(input);
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    return {gradients[0].mul(0.5)};
  }
};

template <at::Tensor (*kForward)(const at::Tensor&)>
at::Tensor half_gradient(const at::Tensor& input) {
  return HalfGradient<kForward>::apply(input);
}

// Returns the input. Because a tensor cannot have two grad_fns, torch returns a view of it to the
// caller.
at::Tensor itself(const at::Tensor& input) { return input; }

at::Tensor alias(const at::Tensor& input) { return input.view_as(input); }

}  // namespace

// In a schema, `(a)` means that the result shares the memory of the input.
TORCH_LIBRARY(openreg, library) {
  library.def("custom_abs(Tensor input) -> Tensor");
  library.def("custom_autograd_fn_returns_self(Tensor(a) input) -> Tensor(a)",
              TORCH_FN(half_gradient<itself>));
  library.def("custom_autograd_fn_aliasing(Tensor(a) input) -> Tensor(a)",
              TORCH_FN(half_gradient<alias>));
}

TORCH_LIBRARY_IMPL(openreg, PrivateUse1, library) {
  library.impl("custom_abs", TORCH_FN(abs_device));
}

TORCH_LIBRARY_IMPL(openreg, Meta, library) { library.impl("custom_abs", TORCH_FN(abs_meta)); }

TORCH_LIBRARY_IMPL(openreg, AutogradPrivateUse1, library) {
  library.impl("custom_abs", TORCH_FN(abs_autograd));
}

// Provides gradients for models on device meta.
TORCH_LIBRARY_IMPL(openreg, AutogradMeta, library) {
  library.impl("custom_abs", TORCH_FN(abs_autograd));
}

TORCH_LIBRARY_IMPL(openreg, AutocastPrivateUse1, library) {
  library.impl("custom_abs", TORCH_FN(abs_autocast));
}

}  // namespace openreg
