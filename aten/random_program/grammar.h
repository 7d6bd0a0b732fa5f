// SPDX-License-Identifier: BSD-3-Clause
//
// Random programs as text, one step per line:
//
//     new 2x3 float32 0         a tensor of random numbers on openreg:0
//     view 0 transpose 1
//     switch_stream 0 2 1
//     change 1 0 add_
//
// grammar() in grammar.cc lists the steps. For each step, tests/random_program_test.py has a method
// with the same name. The index of a tensor is taken modulo the number of tensors. A step that
// needs a tensor does nothing if there is none. Therefore any sequence of steps is a valid program,
// and a failing program can be shrunk by removing steps. Any thread may call these functions.
#ifndef ATEN_RANDOM_PROGRAM_GRAMMAR_H_
#define ATEN_RANDOM_PROGRAM_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace openreg::programs {

inline constexpr size_t kDevices = 2;
inline constexpr size_t kStreams = 3;   // number of streams per device
inline constexpr size_t kTensors = 12;  // maximum number of tensors at the same time

using Step = std::vector<std::string>;
using Steps = std::vector<Step>;

// Generates a program of `length` steps from a seed.
Steps generate(uint64_t seed, size_t length);

std::string text_of(const Steps& steps);

// Parses the programs in a text. Lines that start with = contain results and are skipped.
std::vector<Steps> parse(std::istream& text);

}  // namespace openreg::programs

#endif  // ATEN_RANDOM_PROGRAM_GRAMMAR_H_
