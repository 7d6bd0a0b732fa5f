// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a program fails, and a shorter one that does. Threads: any, each with its own streams.
#ifndef ATEN_RANDOM_PROGRAM_FAILURE_H_
#define ATEN_RANDOM_PROGRAM_FAILURE_H_

#include <optional>
#include <string>

#include "aten/random_program/grammar.h"
#include "aten/random_program/program.h"

namespace openreg::programs {

// What was different, if anything was.
std::optional<std::string> failure_of(const Steps& steps, const Streams& streams);

// Leaves out as many steps as it can so that it still fails.
Steps shrink(Steps steps, const Streams& streams);

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_FAILURE_H_
