// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/error.h"

#include <array>
#include <cstdio>

namespace openreg::allocator {
namespace {

// Formats a number of bytes, for example "512 B" or "1.50 MiB".
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

// Returns advice for the user, which depends on the figures.
std::string advice(const OutOfMemoryError::Figures& figures) {
  std::string text;
  if (figures.cached >= figures.asked && figures.private_free >= figures.cached / 2) {
    text +=
        " Of the cache, " + format_bytes(figures.private_free) +
        " are in private pools of graphs or MemPools, which keep them for themselves until they "
        "are dropped.";
  } else if (figures.cached >= figures.asked && figures.largest_free < figures.asked) {
    text +=
        " The cache has enough, but in pieces between tensors: max_split_size_mb in "
        "PYTORCH_ALLOC_CONF keeps large blocks whole.";
  } else if (figures.cached >= figures.asked) {
    text +=
        " The cache has enough, but in segments of other streams, which only those streams can "
        "use: allocate on fewer streams.";
  }
  if (!figures.limit.has_value() && !figures.reason.empty() &&
      figures.device_free >= figures.asked) {
    // The size is not the cause, so smaller batches need not help.
    return text +
           " The device has enough free memory, so the cause is what the driver says. If its free "
           "memory is fragmented, drop tensors that are no longer needed.";
  }
  text += " Use smaller batches, or drop tensors that are no longer needed";
  text += figures.limit.has_value() ? ", or raise the limit."
                                    : ", or give the device more memory (OPENREG_DEVICE_MEMORY).";
  return text;
}

// Returns the text of the error. The text contains the phrase by which programs recognize the
// error; for example, accelerate's find_executable_batch_size searches for " out of memory.". The
// figures are in the same order as in CUDA's message.
std::string describe(const OutOfMemoryError::Figures& figures) {
  std::string text = "openreg: device " + std::to_string(figures.device) +
                     " is out of memory. Tried to allocate " + format_bytes(figures.asked) + ". ";
  text += "The device has " + format_bytes(figures.device_free) + " free of " +
          format_bytes(figures.device_total) + ". This process holds " +
          format_bytes(figures.reserved) + " of it";
  if (figures.limit.has_value()) {
    text += " and is allowed " + format_bytes(*figures.limit) +
            " (torch.openreg.set_per_process_memory_fraction, or per_process_memory_fraction in "
            "PYTORCH_ALLOC_CONF)";
  }
  text += ": " + format_bytes(figures.allocated) + " in tensors, " + format_bytes(figures.cached) +
          " free in the cache, with the largest free block at " +
          format_bytes(figures.largest_free) + ".";
  if (!figures.reason.empty()) {
    text += " The driver says: " + figures.reason + ".";
  }
  text += advice(figures);
  return text;
}

}  // namespace

std::string driver_text(orError_t error, std::string_view call) {
  std::string text = orGetLastErrorDetail();
  // If the driver has not stored this error, its last text belongs to an earlier error.
  if (text.empty() || orPeekAtLastError() != error) {
    const size_t end = call.find('(');
    const std::string_view function = end == call.npos ? "the driver" : call.substr(0, end);
    text = std::string(function) + " returned " + orGetErrorName(error) + " (" +
           orGetErrorString(error) +
           ") without a message. Each function that fails must store one; the conformance suite of "
           "the driver shows which function does not";
  }
  return text;
}

OutOfMemoryError::OutOfMemoryError(const Figures& figures)
    : Error(orErrorOutOfMemory, describe(figures)), figures_(figures) {}

}  // namespace openreg::allocator
