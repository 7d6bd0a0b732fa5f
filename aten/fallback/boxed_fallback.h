// SPDX-License-Identifier: BSD-3-Clause
//
// The common parts of all boxed fallbacks: the registration, and the checks and counters around
// each call. Any thread may call fall_back().
#ifndef ATEN_FALLBACK_BOXED_FALLBACK_H_
#define ATEN_FALLBACK_BOXED_FALLBACK_H_

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "aten/fallback/call.h"
#include "aten/fallback/operator.h"

namespace openreg {

// The functions of one kind of fallback.
struct FallbackKind {
  void (*run)(Operator& op, const c10::OperatorHandle& handle, const Call& call,
              torch::jit::Stack* stack);
  // Returns the part of the warning that states when the host waits for the call (policy.h).
  const char* (*wait)(const Operator& op, const Call& call);
};

// Runs one call: throws if the fallback does not support the call or the policy forbids it,
// otherwise runs the operator and updates the counters.
void fall_back(const FallbackKind& kind, Operator& op, const c10::OperatorHandle& handle,
               torch::jit::Stack* stack);

// Registers `fallback` for all operators without a kernel. For strided tensors this happens
// immediately; for sparse, quantized and nested tensors, at the first use of the device. Called
// once, when the library that contains the fallback is loaded.
void register_fallback(const c10::BoxedKernel& fallback);

}  // namespace openreg

#endif  // ATEN_FALLBACK_BOXED_FALLBACK_H_
