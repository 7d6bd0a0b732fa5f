// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/error.h"

#include <array>
#include <cstdio>

namespace openreg::allocator {
namespace {

// "512 B", "1.50 MiB".
std::string format_bytes(size_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 48> text{};
  (void)std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value,
                      kUnits[unit]);
  return text.data();
}

std::string describe(const OutOfMemoryError::Figures& figures) {
  std::string text = "openreg: out of memory: device " + std::to_string(figures.device) +
                     " was asked for " + format_bytes(figures.asked) + " and has " +
                     format_bytes(figures.device_free) + " free of " +
                     format_bytes(figures.device_total) + ". This process holds " +
                     format_bytes(figures.reserved) + " of it: " + format_bytes(figures.allocated) +
                     " in tensors, the rest cached, with the largest free block at " +
                     format_bytes(figures.largest_free) + ".";
  if (!figures.reason.empty()) {
    text += " The driver says: " + figures.reason + ".";
  }
  text +=
      " Use smaller batches, drop tensors that are not needed any more, or give the device more "
      "memory (OPENREG_DEVICE_MEMORY).";
  return text;
}

}  // namespace

OutOfMemoryError::OutOfMemoryError(const Figures& figures)
    : Error(orErrorOutOfMemory, describe(figures)), figures_(figures) {}

}  // namespace openreg::allocator
