// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback through the host: copies the arguments to the CPU, runs the CPU's kernel there and
// copies the results back. It needs copies of the driver and nothing else, so a backend starts with
// it: with factories, views and copies (//aten/tensors) it runs nearly every operator of torch.
// Threads: any.
#ifndef ATEN_FALLBACK_HOST_FALLBACK_H_
#define ATEN_FALLBACK_HOST_FALLBACK_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

#include "aten/fallback/call.h"
#include "aten/fallback/host_arguments.h"
#include "aten/fallback/operator.h"

namespace openreg {

// How a kernel of the CPU runs for a device. By default it works on copies, in the calling thread.
struct HostExecution {
  HostArguments::MakeAlias alias;
  // Runs the function it is given in the order of the current stream, and returns when it is done.
  std::function<void(const std::function<void()>&)> run;
};

// Runs the CPU's kernel of `handle` on the arguments at the top of the stack, puts its results in
// their place and returns when all is done.
void run_on_host(Operator& op, const c10::OperatorHandle& handle, const Call& call,
                 torch::jit::Stack* stack, const HostExecution& execution = {});

// The boxed kernel, for register_fallback() (boxed_fallback.h).
void host_fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace openreg

#endif  // ATEN_FALLBACK_HOST_FALLBACK_H_
