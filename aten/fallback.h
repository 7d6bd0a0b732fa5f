// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback: runs every operator that has no kernel of its own on the CPU's kernel.
//
// It is boxed: one function for all operators, which sees the arguments as a stack of IValues.
// Device tensors become aliases (alias.h), nothing is copied on the way in. Two paths:
//
//   asynchronous   structured operators of torch. Their Meta kernel says what the results look
//   like;
//                  these are made on the device, and the out= variant is queued on aliases.
//   synchronizing  all others: the kernel is queued like any other, waited for, and the CPU tensors
//                  that it returned are copied to the device.
//
// Nothing about it is silent: each operator has counters.
// Threads: any.
#ifndef ATEN_FALLBACK_H_
#define ATEN_FALLBACK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg {

// What the fallback did for one operator since the last reset.
struct FallbackRecord {
  std::string name;    // "aten::sort.stable"
  uint64_t calls = 0;  // asynchronous + synchronous
  uint64_t asynchronous = 0;
  uint64_t synchronous = 0;
  uint64_t bytes_in = 0;   // of arguments copied to the host; aliases copy nothing
  uint64_t bytes_out = 0;  // of results copied to the device
  uint64_t ns = 0;         // on the calling thread, waits included
};

// The operators that were called at least once, by name.
OPENREG_API std::vector<FallbackRecord> fallback_stats();
OPENREG_API void fallback_reset();

}  // namespace openreg

#endif  // ATEN_FALLBACK_H_
