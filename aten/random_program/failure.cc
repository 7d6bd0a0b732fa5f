// SPDX-License-Identifier: BSD-3-Clause
#include "aten/random_program/failure.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace openreg::programs {

std::optional<std::string> failure_of(const Steps& steps, const Streams& streams) {
  try {
    Program(streams).run(steps);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return std::nullopt;
}

Steps shrink(Steps steps, const Streams& streams) {
  for (size_t count = steps.size() / 2; count > 0; count /= 2) {
    for (size_t at = 0; at + count <= steps.size();) {
      Steps fewer = steps;
      const auto from = fewer.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.erase(from, from + static_cast<std::ptrdiff_t>(count));
      if (failure_of(fewer, streams).has_value()) {
        steps = std::move(fewer);
      } else {
        at += count;
      }
    }
  }
  return steps;
}

}  // namespace openreg::programs
