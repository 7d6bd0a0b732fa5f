// SPDX-License-Identifier: BSD-3-Clause
//
// Decides whether an operator may fall back: not if the CPU kernel cannot replace it, and not if
// the program forbids it (fallback.h). Any thread may call these functions.
#ifndef ATEN_FALLBACK_POLICY_H_
#define ATEN_FALLBACK_POLICY_H_

#include <exception>
#include <string_view>

#include "aten/fallback/call.h"
#include "aten/fallback/operator.h"

namespace openreg {

// Returns why the operator of this name must not fall back, or nullptr if it may.
const char* reason_against_fallback(std::string_view name);

// Throws if this operator may not fall back, and warns if the policy says so. `wait` returns the
// part of the warning that says when the host waits ("; the host waits for it"), or an empty
// string.
void apply_policy(Operator& op, const Call& call,
                  const char* (*wait)(const Operator&, const Call&));

// Returns whether an exception thrown by a Meta kernel is an interrupt of the program.
bool is_interrupt(const std::exception& error);

}  // namespace openreg

#endif  // ATEN_FALLBACK_POLICY_H_
