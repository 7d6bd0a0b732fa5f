// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/policy.h"

#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "aten/fallback/boxed_tensors.h"
#include "aten/fallback/fallback.h"
#include "aten/fallback/setting.h"

namespace openreg {
namespace {

std::atomic<FallbackPolicy>& policy() {
  static std::atomic<FallbackPolicy> policy{
      read_setting<FallbackPolicy, 3>("OPENREG_FALLBACK", {{{"silent", FallbackPolicy::kSilent},
                                                            {"warn", FallbackPolicy::kWarn},
                                                            {"error", FallbackPolicy::kError}}})};
  return policy;
}

std::atomic<bool (*)(const std::exception&)>& interrupts() {
  static std::atomic<bool (*)(const std::exception&)> interrupts{
      [](const std::exception&) { return false; }};
  return interrupts;
}

// Operators that need a device kernel, because the CPU kernel would not do the same. If the device
// has no kernel, the call throws an error with the reason instead of returning a wrong result.
struct Irreplaceable {
  std::string_view name;
  const char* reason;
};
constexpr const char* kMemory = "it must allocate device memory";
constexpr const char* kView = "a view must share the memory of its base, including later writes";
constexpr const char* kStorage = "it changes the storage of the device tensor";
constexpr const char* kCopy = "the fallback itself is implemented by copies";
constexpr const char* kNoCpu = "the CPU has no kernel for it";
constexpr Irreplaceable kIrreplaceable[] = {
    {"aten::_copy_from", kCopy},
    {"aten::_copy_from_and_resize", kCopy},
    {"aten::_efficientzerotensor", kMemory},
    {"aten::_fused_sdp_choice", "the CPU would choose a kernel that only the CPU has"},
    {"aten::_has_compatible_shallow_copy_type", "it concerns the class of the tensor"},
    {"aten::_local_scalar_dense", "the host uses it to read a value"},
    {"aten::_nested_view_from_buffer", kView},
    {"aten::_reshape_alias", kView},
    {"aten::_thnn_fused_gru_cell", kNoCpu},
    {"aten::_thnn_fused_lstm_cell", kNoCpu},
    {"aten::as_strided", kView},
    {"aten::convolution_backward_overrideable", kNoCpu},
    {"aten::convolution_overrideable", kNoCpu},
    {"aten::empty.memory_format", kMemory},
    {"aten::empty_strided", kMemory},
    {"aten::from_file", kMemory},
    {"aten::is_set_to", "it compares storages, not data"},
    {"aten::record_stream", "the CPU has no streams"},
    {"aten::resize_", kStorage},
    {"aten::set_", kStorage},
    {"aten::set_.source_Storage", kStorage},
    {"aten::set_.source_Storage_storage_offset", kStorage},
    {"aten::set_.source_Tensor", kStorage},
    {"aten::unfold", kView},
    {"aten::view", kView},
    {"aten::view_as_complex", kView},
    {"aten::view_as_real", kView},
};

// Returns dtype, size and layout of each tensor among the arguments, such as "float64[3, 4]".
std::string tensors_in(c10::ArrayRef<c10::IValue> arguments) {
  std::string result;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      result += result.empty() ? "" : ", ";
      result += c10::getDtypeNames(tensor.scalar_type()).first;
      if (tensor.is_nested()) {
        result += " nested";
        return;
      }
      result += c10::str(tensor.sizes());
      if (tensor.layout() != c10::kStrided) {
        result += c10::str(" ", tensor.layout());
      }
    });
  }
  return result;
}

}  // namespace

const char* reason_against_fallback(std::string_view name) {
  for (const auto& [irreplaceable, reason] : kIrreplaceable) {
    if (irreplaceable == name) {
      return reason;
    }
  }
  return nullptr;
}

void apply_policy(Operator& op, const Call& call, c10::ArrayRef<c10::IValue> arguments,
                  const char* (*wait)(const Operator&, const Call&)) {
  // Tensors with parts (sparse, quantized, nested) are an exception: a view of one has the same
  // parts, and a sparse tensor may get new parts.
  const bool may_replace = call.has_parts && (op.irreplaceable == kView ||
                                              (op.irreplaceable == kStorage && call.sparse));
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.irreplaceable == nullptr || may_replace, "openreg: ", op.name,
      " requires a device kernel, but none is registered. The CPU kernel cannot "
      "replace it, because ",
      op.irreplaceable);
  switch (policy().load(std::memory_order_relaxed)) {
    case FallbackPolicy::kSilent:
      break;
    case FallbackPolicy::kWarn:
      if (!op.warned.exchange(true, std::memory_order_relaxed)) {
        TORCH_WARN("openreg: ", op.name, " has no device kernel for these arguments (",
                   tensors_in(arguments), ") and runs on the CPU kernel", wait(op, call),
                   ". Warned once per operator; torch.openreg.fallback.report() shows all calls.");
      }
      break;
    case FallbackPolicy::kError:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "openreg: ", op.name, " has no device kernel for these arguments (",
          tensors_in(arguments),
          "), and the policy forbids falling back to the CPU kernel: allow it with "
          "torch.openreg.fallback.set_policy(\"warn\") or "
          "OPENREG_FALLBACK=warn in the environment, or run this operator on CPU tensors");
  }
}

bool is_interrupt(const std::exception& error) {
  return interrupts().load(std::memory_order_relaxed)(error);
}

FallbackPolicy fallback_policy() { return policy().load(std::memory_order_relaxed); }

void set_fallback_policy(FallbackPolicy now) { policy().store(now, std::memory_order_relaxed); }

void set_interrupt_filter(bool (*filter)(const std::exception&)) {
  interrupts().store(filter, std::memory_order_relaxed);
}

std::vector<std::pair<std::string, std::string>> irreplaceable_operators() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [name, reason] : kIrreplaceable) {
    result.emplace_back(name, reason);
  }
  return result;
}

}  // namespace openreg
