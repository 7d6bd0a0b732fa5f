// SPDX-License-Identifier: BSD-3-Clause
#include "aten/random_program/flags.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

namespace openreg::programs {

Flags flags;

void set_flag(std::string_view argument) {
  const size_t equals = std::min(argument.find('='), argument.size());
  const std::string_view name = argument.substr(0, equals);
  const std::string_view value = argument.substr(std::min(equals + 1, argument.size()));
  const auto read = [&](auto& number) {
    const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
    TORCH_CHECK_VALUE(result.ec == std::errc() && result.ptr == value.data() + value.size(),
                      "expected ", name, "=NUMBER, but got ", argument);
  };
  if (name == "--show") {
    flags.show = true;
  } else if (name == "--replay") {
    flags.replay = value;
    flags.show = true;
  } else if (name == "--programs") {
    read(flags.programs);
  } else if (name == "--seed") {
    read(flags.seed);
  } else if (name == "--steps") {
    read(flags.steps);
  } else if (name == "--threads") {
    read(flags.threads);
  } else {
    TORCH_CHECK_VALUE(false, "unknown flag ", argument,
                      ": expected --programs, --seed, --steps, --threads, --show or --replay");
  }
}

}  // namespace openreg::programs
