// SPDX-License-Identifier: BSD-3-Clause
//
// Random programs as text, one step a line:
//
//     new 2x3 float32 0         a tensor of random numbers on openreg:0
//     view 0 transpose 1
//     switch_stream 0 2 1
//     change 1 0 add_
//
// grammar() in grammar.cc lists the steps, and tests/random_program_test.py has a method of the
// same name for each. A number that stands for a tensor counts modulo those that there are, and a
// step that finds no tensor does nothing: any sequence of steps is a program, so one that fails is
// made shorter by leaving steps out. Threads: any.
#ifndef ATEN_RANDOM_PROGRAM_GRAMMAR_H_
#define ATEN_RANDOM_PROGRAM_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace openreg::programs {

inline constexpr size_t kDevices = 2;
inline constexpr size_t kStreams = 3;   // of a device
inline constexpr size_t kTensors = 12;  // at a time

using Step = std::vector<std::string>;
using Steps = std::vector<Step>;

// The program of a seed.
Steps generate(uint64_t seed, size_t length);

std::string text_of(const Steps& steps);

// The programs of a text; lines that start with = are results.
std::vector<Steps> parse(std::istream& text);

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_GRAMMAR_H_
