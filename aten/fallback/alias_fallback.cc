// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/alias_fallback.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "aten/fallback/boxed_fallback.h"
#include "aten/fallback/host_fallback.h"
#include "aten/fallback/queued_call.h"
#include "aten/fallback/setting.h"
#include "aten/launch/launch.h"

namespace openreg {
namespace {

using torch::jit::Stack;

enum class Mode { kAlias, kCopy };

Mode mode() {
  static const Mode mode = read_setting<Mode, 2>(
      "OPENREG_FALLBACK_MODE", {{{"alias", Mode::kAlias}, {"copy", Mode::kCopy}}});
  return mode;
}

// Runs the operator and waits for it. Unless copies are requested, queues the kernel on aliases, in
// stream order like every kernel. Because of the wait, the kernel may use references to local
// variables of this function.
void run_and_wait(AliasOperator& op, const c10::OperatorHandle& handle, const Call& call,
                  Stack* stack) {
  if (mode() == Mode::kCopy) {
    run_on_host(op, handle, call, stack);
    return;
  }
  AliasPool pool;
  const HostExecution execution{
      .alias = [&pool](const at::Tensor& tensor) { return pool.alias(tensor); },
      .run =
          [&op, &call](const std::function<void()>& kernel) {
            launch_kernel({.name = op.name.c_str(),
                           .cost = call.numel * kCostPerElement,
                           .check = Check::kAlways},
                          call.device,
                          [&kernel](AliasPool& /*aliases*/) { return [&kernel] { kernel(); }; });
          }};
  run_on_host(op, handle, call, stack, execution);
}

// Returns whether the call may use the metadata of an earlier call. A call with CPU tensors may
// not, because the values of these tensors, such as lengths, may determine the sizes of results.
bool uses_cache(const AliasOperator& op, const Call& call) {
  return op.cacheable && !op.inconsistent.load(std::memory_order_relaxed) && !call.on_host;
}

// Returns whether the host waits for this call even if the same call ran before.
bool always_waits(const AliasOperator& op, const Call& call) {
  return (op.path == MetaPath::kUnknown && !uses_cache(op, call)) || call.has_parts ||
         call.to_cpu || mode() == Mode::kCopy;
}

void run(Operator& any, const c10::OperatorHandle& handle, const Call& call, Stack* stack) {
  auto& op = static_cast<AliasOperator&>(any);
  if (always_waits(op, call)) {
    run_and_wait(op, handle, call, stack);
    return;
  }
  const auto arguments = torch::jit::last(*stack, handle.schema().arguments().size());
  std::optional<MetadataKey> key;
  std::optional<OutputObserver> observer;
  if (uses_cache(op, call)) {
    key = metadata_key(arguments);
  }
  if (key.has_value()) {
    if (std::shared_ptr<const OutputMetadata> expected = op.cache.find(*key)) {
      op.asynchronous.fetch_add(1, std::memory_order_relaxed);
      queue_by_cache(op, handle, call, std::move(expected), stack);
      return;
    }
    observer.emplace(arguments);
  }
  if (op.path != MetaPath::kUnknown && queue_by_meta(op, handle, call, stack)) {
    op.asynchronous.fetch_add(1, std::memory_order_relaxed);
  } else {
    run_and_wait(op, handle, call, stack);
  }
  if (observer.has_value()) {
    std::optional<OutputMetadata> seen =
        observer->observe(torch::jit::last(*stack, handle.schema().returns().size()));
    if (seen.has_value()) {
      op.cache.add(std::move(*key), std::move(*seen));
    }
  }
}

const char* wait(const Operator& any, const Call& call) {
  const auto& op = static_cast<const AliasOperator&>(any);
  return always_waits(op, call)          ? "; the host waits for it"
         : op.path == MetaPath::kUnknown ? "; the host waits for it when sizes or dtypes are new"
                                         : "";
}

[[maybe_unused]] const bool registered =
    (register_fallback(c10::BoxedKernel::makeFromFunction<&alias_fallback>()), true);

}  // namespace

void alias_fallback(const c10::OperatorHandle& handle, Stack* stack) {
  static constexpr FallbackKind kind{.run = &run, .wait = &wait};
  fall_back(kind, find_operator<AliasOperator>(handle), handle, stack);
}

}  // namespace openreg
