// SPDX-License-Identifier: BSD-3-Clause
//
// Reads settings of the fallback from the environment. Any thread may call it.
#ifndef ATEN_FALLBACK_SETTING_H_
#define ATEN_FALLBACK_SETTING_H_

#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace openreg {

// Returns the value of an environment variable that accepts one of several words. The first word is
// the default.
template <class T, size_t kCount>
T read_setting(const char* variable, const std::array<std::pair<const char*, T>, kCount>& words) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') {
    return words.front().second;
  }
  std::string known;
  for (const auto& [word, meaning] : words) {
    if (std::string_view(value) == word) {
      return meaning;
    }
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  TORCH_CHECK_VALUE(false, variable, " is \"", value, "\": expected one of ", known);
}

}  // namespace openreg

#endif  // ATEN_FALLBACK_SETTING_H_
