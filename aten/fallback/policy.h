// SPDX-License-Identifier: BSD-3-Clause
//
// Decides whether an operator may fall back. It may not if the CPU kernel cannot replace a device
// kernel, or if the program forbids fallbacks (fallback.h). Any thread may call these functions.
#ifndef ATEN_FALLBACK_POLICY_H_
#define ATEN_FALLBACK_POLICY_H_

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <exception>
#include <string_view>

#include "aten/fallback/call.h"
#include "aten/fallback/operator.h"

namespace openreg {

// Returns the reason why the operator with this name must not fall back, or nullptr if it may.
const char* reason_against_fallback(std::string_view name);

// Throws if this operator may not fall back. Warns if the policy is kWarn. `arguments` are those of
// `call`; the messages describe the tensors among them. `wait` returns the part of the warning that
// states when the host waits ("; the host waits for it"), or an empty string.
void apply_policy(Operator& op, const Call& call, c10::ArrayRef<c10::IValue> arguments,
                  const char* (*wait)(const Operator&, const Call&));

// Returns whether an exception thrown by a Meta kernel is an interrupt of the program.
bool is_interrupt(const std::exception& error);

}  // namespace openreg

#endif  // ATEN_FALLBACK_POLICY_H_
