// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/host_fallback.h"

#include "aten/fallback/boxed_fallback.h"
#include "aten/fallback/boxed_tensors.h"
#include "runtime/diagnostics/implicit_wait.h"

namespace openreg {

void run_on_host(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                 torch::jit::Stack* stack, const HostExecution& execution) {
  op.synchronous.fetch_add(1, std::memory_order_relaxed);
  announce_wait(
      op.name.c_str(),
      "it has no device kernel, and its results are known only after the CPU kernel has run",
      call.device);
  const c10::FunctionSchema& schema = handle.schema();
  const size_t first = stack->size() - schema.arguments().size();
  HostArguments hosts(call.device, execution.alias);
  for (size_t i = first; i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return hosts.to_host(tensor, op.writes[i - first]);
    });
  }
  for (const Draw& draw : replace_places(op, schema, call, *stack, first)) {
    (*stack)[first + draw.argument] = make_cpu_generator(draw.state);
  }

  const auto kernel = [&] { handle.redispatchBoxed(hosts.keys(), stack); };
  if (execution.run) {
    execution.run(kernel);
  } else {
    kernel();
  }

  hosts.finish();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return call.to_cpu ? tensor : hosts.to_device(tensor);
    });
  }
  op.bytes_in.fetch_add(hosts.bytes_in(), std::memory_order_relaxed);
  op.bytes_out.fetch_add(hosts.bytes_out(), std::memory_order_relaxed);
}

void host_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  static constexpr FallbackKind kind{
      .run = [](Operator& op, const c10::OperatorHandle& handle, const Call& call,
                torch::jit::Stack* stack) { run_on_host(op, handle, call, stack); },
      .wait = [](const Operator& /*op*/,
                 const Call& /*call*/) { return "; the host waits for it"; }};
  fall_back(kind, find_operator<Operator>(handle), handle, stack);
}

}  // namespace openreg
