// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback through the host: copies the arguments to the CPU, runs the CPU kernel there and
// copies the results back. It needs only the driver's copies, so a new backend can start with it.
// Together with factories, views and copies (//aten/tensors), it runs nearly every operator of
// torch. Any thread may call it.
#ifndef ATEN_FALLBACK_HOST_FALLBACK_H_
#define ATEN_FALLBACK_HOST_FALLBACK_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

#include "aten/fallback/call.h"
#include "aten/fallback/host_arguments.h"
#include "aten/fallback/operator.h"

namespace openreg {

// How a device runs a CPU kernel. By default, the kernel works on copies, on the calling thread.
struct HostExecution {
  HostArguments::MakeAlias alias;
  // Runs the given function in the order of the current stream, and returns when it has finished.
  std::function<void(const std::function<void()>&)> run;
};

// Runs the CPU kernel of `handle` on the arguments at the top of the stack and replaces them with
// its results. Returns when the kernel and all copies have finished.
void run_on_host(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                 torch::jit::Stack* stack, const HostExecution& execution = {});

// The boxed kernel for register_fallback() (boxed_fallback.h): runs an operator on copies of its
// arguments.
void host_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_HOST_FALLBACK_H_
