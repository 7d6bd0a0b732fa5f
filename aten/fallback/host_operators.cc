// SPDX-License-Identifier: BSD-3-Clause
//
// A device without kernels. Registers the host fallback, and the operators for which torch uses
// different names on accelerators and on the CPU. The build links this file instead of the kernels
// (./bazelw ... --config=host_fallback). Any thread may call the operators.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/native_dropout_native.h>
#include <torch/library.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "aten/fallback/boxed_fallback.h"
#include "aten/fallback/call.h"
#include "aten/fallback/host_fallback.h"
#include "aten/fallback/operator.h"

namespace openreg {
namespace {

using torch::jit::Stack;

// Operators whose composite implementation in torch does not work on a device without kernels, so
// they fall back. torch's addr rounds differently from the CPU kernel, and its addr_ may change the
// shape of the tensor. Layer and group normalization also round differently, and return statistics
// of another dtype. The other implementations call CPU or device kernels.
constexpr const char* kUnfitComposites[] = {"_batch_norm_no_update",
                                            "addr",
                                            "addr.out",
                                            "addr_",
                                            "kaiser_window",
                                            "kaiser_window.beta",
                                            "kaiser_window.periodic",
                                            "native_group_norm",
                                            "native_layer_norm"};

void run_cpu_operator(const char* name, Stack* stack) {
  const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  auto& op = find_operator<Operator>(handle);
  const size_t first = stack->size() - handle.schema().arguments().size();
  run_on_host(op, handle, inspect(op, *stack, first), stack);
}

void convolution(const c10::OperatorHandle& /*handle*/, Stack* stack) {
  run_cpu_operator("aten::convolution", stack);
}

// Calls the CPU operator. It has an additional fourth argument: the sizes of the bias if the bias
// needs a gradient, otherwise None.
void convolution_backward(const c10::OperatorHandle& handle, Stack* stack) {
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(handle.schema().arguments().size());
  const int64_t channels = first->toTensor().size(1);
  const bool has_bias = stack->back().toBoolList().get(2);
  stack->insert(first + 3, has_bias ? c10::IValue(std::vector<int64_t>{channels}) : c10::IValue());
  run_cpu_operator("aten::convolution_backward", stack);
}

// Makes scaled_dot_product_attention use matrix products and a softmax. Each of these operators
// falls back.
int64_t choose_attention(const at::Tensor& /*query*/, const at::Tensor& /*key*/,
                         const at::Tensor& /*value*/, const std::optional<at::Tensor>& /*mask*/,
                         double /*dropout*/, bool /*causal*/, std::optional<double> /*scale*/,
                         bool /*enable_gqa*/) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

[[maybe_unused]] const bool registered =
    (register_fallback(c10::BoxedKernel::makeFromFunction<&host_fallback>()), true);

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable",
               torch::CppFunction::makeFromBoxedFunction<&convolution>());
  library.impl("convolution_backward_overrideable",
               torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  library.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  // torch's CPU function for native_dropout works on any device, because it calls bernoulli_, which
  // uses the device's generator. The fallback would use the CPU's generator, because native_dropout
  // has no generator argument.
  library.impl("native_dropout", TORCH_FN(at::native::native_dropout_cpu));
  for (const char* name : kUnfitComposites) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&host_fallback>());
  }
}

}  // namespace openreg

namespace at::native {
// scaled_dot_product_attention calls this stub; torch._fused_sdp_choice calls the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &openreg::choose_attention)
}  // namespace at::native
