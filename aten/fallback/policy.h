// SPDX-License-Identifier: BSD-3-Clause
//
// Whether an operator may fall back: not if the CPU's kernel cannot take its place, and not if the
// program forbids it (fallback.h). Threads: any.
#ifndef ATEN_FALLBACK_POLICY_H_
#define ATEN_FALLBACK_POLICY_H_

#include <exception>
#include <string_view>

#include "aten/fallback/call.h"
#include "aten/fallback/operator.h"

namespace openreg {

// Why the operator of this name must not fall back; nullptr: it may.
const char* reason_against_fallback(std::string_view name);

// Throws where this operator may not fall back, warns where the user wants to know. `wait` says in
// the warning when the host waits for it ("; the host waits for it"), or nothing.
void apply_policy(Operator& op, const Call& call,
                  const char* (*wait)(const Operator&, const Call&));

// Whether an exception out of a Meta kernel is an interrupt of the program.
bool is_interrupt(const std::exception& error);

}  // namespace openreg

#endif  // ATEN_FALLBACK_POLICY_H_
