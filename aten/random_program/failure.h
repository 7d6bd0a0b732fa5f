// SPDX-License-Identifier: BSD-3-Clause
//
// Checks whether a program fails, and shrinks failing programs. Any thread may call these functions
// if it has its own streams.
#ifndef ATEN_RANDOM_PROGRAM_FAILURE_H_
#define ATEN_RANDOM_PROGRAM_FAILURE_H_

#include <optional>
#include <string>

#include "aten/random_program/grammar.h"
#include "aten/random_program/program.h"

namespace openreg::programs {

// Runs a program and returns the description of its failure, if any.
std::optional<std::string> failure_of(const Steps& steps, const Streams& streams);

// Removes as many steps as possible while the program still fails.
Steps shrink(Steps steps, const Streams& streams);

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_FAILURE_H_
