// SPDX-License-Identifier: BSD-3-Clause
//
// What every boxed fallback does, whichever way it runs the CPU's kernel: its registration, and the
// checks and counters around a call. Threads: any.
#ifndef ATEN_FALLBACK_BOXED_FALLBACK_H_
#define ATEN_FALLBACK_BOXED_FALLBACK_H_

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "aten/fallback/call.h"
#include "aten/fallback/operator.h"

namespace openreg {

// How one kind of fallback runs an operator.
struct FallbackKind {
  void (*run)(Operator& op, const c10::OperatorHandle& handle, const Call& call,
              torch::jit::Stack* stack);
  // For the warning: when the host waits for such a call (policy.h).
  const char* (*wait)(const Operator& op, const Call& call);
};

// One call: refuses what the fallback cannot do or the policy forbids, runs the operator, counts.
void fall_back(const FallbackKind& kind, Operator& op, const c10::OperatorHandle& handle,
               torch::jit::Stack* stack);

// Registers `fallback` for all operators without a kernel: of plain tensors at once, of sparse,
// quantized and nested ones at the first use of the device. Called once, while the library that has
// the fallback is loaded.
void register_fallback(const c10::BoxedKernel& fallback);

}  // namespace openreg

#endif  // ATEN_FALLBACK_BOXED_FALLBACK_H_
