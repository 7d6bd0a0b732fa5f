// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/boxed_fallback.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "aten/fallback/policy.h"
#include "runtime/c10/initialization.h"

namespace openreg {
namespace {

using c10::DispatchKey;

// Operators for which torch registers a device-independent function, which would take precedence
// over the fallback but does not work for this device. Such a function rejects unknown device
// names, requires a device-specific loop, or reads device memory from the host. torch's
// _linalg_solve_ex creates results on the devices of two arguments before it checks that the
// devices are equal.
constexpr const char* kOverridingTorch[] = {"_linalg_solve_ex", "_validate_sparse_coo_tensor_args",
                                            "choose_qparams_optimized", "conj_physical_",
                                            "mode.values"};

// The device's dispatch keys for sparse, quantized and nested tensors, each with its CPU key.
constexpr std::pair<DispatchKey, DispatchKey> kKeys[] = {
    {DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU},
    {DispatchKey::SparseCsrPrivateUse1, DispatchKey::SparseCsrCPU},
    {DispatchKey::QuantizedPrivateUse1, DispatchKey::QuantizedCPU},
    {DispatchKey::NestedTensorPrivateUse1, DispatchKey::NestedTensorCPU}};

// Never destroyed, because the registered functions may be called while the process exits.
struct Registrations {
  c10::BoxedKernel fallback;
  std::vector<torch::Library> libraries;

  torch::CppFunction function() const { return torch::CppFunction::makeFromBoxedKernel(fallback); }
};

Registrations& registrations() {
  static auto* const registrations = std::make_unique<Registrations>().release();
  return *registrations;
}

torch::Library& add_library(torch::Library::Kind kind, const char* name,
                            std::optional<DispatchKey> key) {
  return registrations().libraries.emplace_back(kind, name, key, __FILE__, __LINE__);
}

// Registers the fallback for all operators for which the CPU has a kernel and the device has none.
void register_one_by_one() {
  torch::Library& aten = add_library(torch::Library::FRAGMENT, "aten", std::nullopt);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto handle = name.getNamespace() == "aten" ? dispatcher.findOp(name) : std::nullopt;
    if (!handle.has_value()) {
      continue;
    }
    for (const auto& [ours, cpu] : kKeys) {
      if (handle->hasKernelForDispatchKey(cpu) && !handle->hasKernelForDispatchKey(ours)) {
        aten.impl(toString(name).c_str(), torch::dispatch(ours, registrations().function()));
      }
    }
  }
}

// Registers the fallback for the keys in kKeys. For each key torch iterates over its thousands of
// operators, which takes a few milliseconds. Therefore the registration is deferred until the first
// use of the device; no tensor with these keys can exist earlier. Other threads may call operators
// during the registration: only the entries of these keys change, and all other entries are
// rewritten with the same value.
void register_at_first_use() {
  register_one_by_one();
  for (const auto& [ours, cpu] : kKeys) {
    add_library(torch::Library::IMPL, "_", ours).fallback(registrations().function());
  }
}

}  // namespace

void fall_back(const FallbackKind& kind, Operator& op, const c10::OperatorHandle& handle,
               torch::jit::Stack* stack) {
  const auto start = std::chrono::steady_clock::now();
  const size_t count = handle.schema().arguments().size();
  const Call call = inspect(op, *stack, stack->size() - count);
  apply_policy(op, call, torch::jit::last(*stack, count), kind.wait);
  TORCH_CHECK_NOT_IMPLEMENTED(
      call.has_parts || handle.hasComputedKernelForDispatchKey(DispatchKey::CPU), "Could not run '",
      op.name,
      "' with arguments from the 'openreg' backend: there is no kernel for openreg, and none for "
      "the CPU to fall back to.");
  kind.run(op, handle, call, stack);
  op.ns.fetch_add(static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::steady_clock::now() - start)
                                            .count()),
                  std::memory_order_relaxed);
}

void register_fallback(const c10::BoxedKernel& fallback) {
  registrations().fallback = fallback;
  torch::Library& aten = add_library(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1);
  for (const char* name : kOverridingTorch) {
    aten.impl(name, registrations().function());
  }
  add_library(torch::Library::IMPL, "_", DispatchKey::PrivateUse1)
      .fallback(registrations().function());
  at_initialization(&register_at_first_use);
}

}  // namespace openreg
