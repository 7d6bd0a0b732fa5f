// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/call.h"

#include <c10/util/Exception.h>

#include <optional>

#include "aten/fallback/boxed_tensors.h"
#include "aten/tensors/tensor.h"
#include "aten/tensors/tensor_parts.h"

namespace openreg {
namespace {

using torch::jit::Stack;

void refuse(const Call& call, c10::Device other) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kOpenRegType, call.device), " and ", other, "!");
}

}  // namespace

Call inspect(const Operator& op, const Stack& stack, size_t first) {
  Call call;
  call.reports =
      op.reports || (op.check_errors.has_value() && stack[first + *op.check_errors].toBool());
  bool on_device = false;
  std::optional<c10::Device> other;  // the device of a tensor that must be on openreg but is not
  for (size_t i = first; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isDevice()) {
      call.to_cpu = value.toDevice().is_cpu();
      if (value.toDevice().type() == kOpenRegType && value.toDevice().has_index()) {
        call.device = value.toDevice().index();
      }
    }
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      if (is_device(tensor)) {
        if (call.device >= 0 && tensor.get_device() != call.device) {
          refuse(call, tensor.device());
        }
        call.device = tensor.get_device();
        call.numel += tensor.numel();
        on_device = true;
      } else {
        const bool ranked = tensor.dim() != 0;
        call.on_host |= ranked;
        if (!tensor.is_cpu() || op.writes[i - first] || (ranked && !op.takes_host[i - first])) {
          other = tensor.device();
        }
      }
      call.has_parts |= has_parts(tensor);
      call.sparse |= tensor.layout() != c10::kStrided;
    });
  }
  if (on_device && other.has_value()) {
    refuse(call, *other);
  }
  if (call.device < 0) {
    call.device = current_device();
  }
  return call;
}

std::vector<Draw> replace_places(const Operator& op, const c10::FunctionSchema& schema,
                                 const Call& call, Stack& stack, size_t first) {
  std::vector<Draw> draws;
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isDevice() && value.toDevice().type() == kOpenRegType) {
      value = c10::Device(c10::kCPU);
    }
    if (op.random && schema.arguments()[i - first].name() == "generator") {
      const auto generator = value.toOptional<at::Generator>();
      draws.push_back({i - first, reserve(generator, call.device, kCpuGeneratorNumbers)});
    }
  }
  return draws;
}

}  // namespace openreg
