// SPDX-License-Identifier: BSD-3-Clause
#include "aten/fallback/host_fallback.h"

#include <c10/util/Exception.h>

#include <vector>

#include "aten/fallback/boxed_fallback.h"
#include "aten/fallback/boxed_tensors.h"
#include "runtime/diagnostics/implicit_wait.h"

namespace openreg {
namespace {

// Passes the warnings of a CPU kernel to the thread's handler, except those about resized outputs,
// which the caller delivers if an output has another size after the call.
//
// Some kernels resize an output only temporarily. An example is mse_loss: if a device has no kernel
// for it, torch creates the output with the final shape and calls mse_loss.out, whose CPU kernel
// resizes the output to the shape of the inputs and back. The functional variant of the CPU does
// not warn, and neither may the device.
class ResizeWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().rfind("An output with one or more elements was resized", 0) == 0) {
      kept_.push_back(warning);
    } else {
      handler_->process(warning);
    }
  }

  void deliver() {
    for (const c10::Warning& warning : kept_) {
      handler_->process(warning);
    }
  }

 private:
  c10::WarningHandler* const handler_ = c10::WarningUtils::get_warning_handler();
  std::vector<c10::Warning> kept_;
};

}  // namespace

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

  const auto kernel = [&] {
    ResizeWarnings warnings;
    {
      const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
      handle.redispatchBoxed(hosts.keys(), stack);
    }
    if (hosts.resized()) {
      warnings.deliver();
    }
  };
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
