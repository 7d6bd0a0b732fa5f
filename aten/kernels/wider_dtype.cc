// SPDX-License-Identifier: BSD-3-Clause
//
// Operators with dtypes that accelerators support but CPU kernels do not. float16 and bfloat16 are
// computed in float32, and bool in int64. Results of the float32 operators are converted back.
// docs/operators.md lists all operators for which torch supports such dtypes. Any thread may call
// these functions.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "aten/fallback/alias_fallback.h"
#include "aten/tensors/tensor.h"

namespace openreg {
namespace {

// A tensor that the operator writes to, and the tensor of a wider dtype that replaces it in the
// call.
struct Written {
  at::Tensor original;
  at::Tensor wider;
};

// Returns whether the argument is a device tensor with a dtype for which the CPU has no kernel.
bool is_narrow(const c10::IValue& argument, bool is_bfloat16_narrow) {
  if (!argument.isTensor() || !argument.toTensor().defined() || !is_device(argument.toTensor())) {
    return false;
  }
  const c10::ScalarType dtype = argument.toTensor().scalar_type();
  return dtype == c10::kHalf || (is_bfloat16_narrow && dtype == c10::kBFloat16);
}

// Converts a result of the operator to the caller's dtype. If the operator wrote the result to an
// argument, returns the caller's tensor.
at::Tensor narrow(const at::Tensor& result, const std::vector<Written>& written,
                  c10::ScalarType dtype) {
  for (const Written& pair : written) {
    if (result.is_same(pair.wider)) {
      return pair.original;
    }
  }
  return result.defined() && result.scalar_type() == c10::kFloat ? result.to(dtype) : result;
}

template <bool kBFloat16>
void compute_in_float(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const auto& parameters = handle.schema().arguments();
  const size_t first = stack->size() - parameters.size();
  std::optional<c10::ScalarType> dtype;
  std::vector<Written> written;
  for (size_t i = 0; i < parameters.size(); ++i) {
    c10::IValue& argument = (*stack)[first + i];
    if (!is_narrow(argument, kBFloat16)) {
      continue;
    }
    at::Tensor original = argument.toTensor();
    at::Tensor wider = original.to(c10::kFloat);
    dtype = dtype.value_or(original.scalar_type());
    if (parameters[i].alias_info() != nullptr && parameters[i].alias_info()->isWrite()) {
      written.push_back({std::move(original), wider});
    }
    argument = std::move(wider);
  }
  alias_fallback(handle, stack);
  for (const Written& pair : written) {
    if (pair.original.sizes() != pair.wider.sizes()) {
      pair.original.resize_(pair.wider.sizes());  // the operator has already warned
    }
    pair.original.copy_(pair.wider);
  }
  for (size_t i = stack->size() - handle.schema().returns().size(); i < stack->size(); ++i) {
    c10::IValue& result = (*stack)[i];
    if (dtype.has_value() && result.isTensor()) {
      result = narrow(result.toTensor(), written, *dtype);
    }
  }
}

// Converts a bool argument to int64, because the sum of bool values is an integer.
void compute_in_long(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  c10::IValue& argument = stack->back();
  if (is_device(argument.toTensor()) && argument.toTensor().scalar_type() == c10::kBool) {
    argument = argument.toTensor().to(c10::kLong);
  }
  alias_fallback(handle, stack);
}

constexpr const char* kInFloat[] = {
    "_upsample_bicubic2d_aa",
    "_upsample_bicubic2d_aa.out",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_bicubic2d_aa_backward.grad_input",
    "_upsample_bilinear2d_aa",
    "_upsample_bilinear2d_aa.out",
    "_upsample_bilinear2d_aa_backward",
    "_upsample_bilinear2d_aa_backward.grad_input",
    "avg_pool3d",
    "avg_pool3d.out",
    "avg_pool3d_backward",
    "avg_pool3d_backward.grad_input",
    "multi_margin_loss",
    "multi_margin_loss.out",
    "multi_margin_loss_backward",
    "multi_margin_loss_backward.grad_input",
    "multilabel_margin_loss_backward",
    "multilabel_margin_loss_backward.grad_input",
    "multilabel_margin_loss_forward",
    "multilabel_margin_loss_forward.output",
};
// Operators for which the CPU supports bfloat16, so that only float16 is computed in float32.
constexpr const char* kHalfInFloat[] = {"rrelu_with_noise", "rrelu_with_noise.out",
                                        "rrelu_with_noise_"};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : kInFloat) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute_in_float<true>>());
  }
  for (const char* name : kHalfInFloat) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute_in_float<false>>());
  }
  library.impl("trace", torch::CppFunction::makeFromBoxedFunction<&compute_in_long>());
}

}  // namespace openreg
