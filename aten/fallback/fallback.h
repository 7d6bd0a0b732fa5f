// SPDX-License-Identifier: BSD-3-Clause
//
// What a program asks of the fallback: which operators fell back, and whether they may. An operator
// without a kernel of the device runs on the CPU's, by one boxed function for all operators:
//
//   host_fallback.h   copies the arguments to the host and the results back: all that a device
//                     needs, and the slowest way
//   alias_fallback.h  the emulation's: the CPU's kernel works on device memory itself, queued like
//                     any other kernel
//
// Nothing about it is silent: each operator has counters, and a policy says whether falling back is
// allowed at all (OPENREG_FALLBACK=silent|warn|error; one for the process).
// Threads: any.
#ifndef ATEN_FALLBACK_FALLBACK_H_
#define ATEN_FALLBACK_FALLBACK_H_

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
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

// What happens when an operator falls back: nothing, one warning for each operator, or an error
// (NotImplementedError in Python) before anything is done.
enum class FallbackPolicy { kSilent, kWarn, kError };
OPENREG_API FallbackPolicy fallback_policy();
OPENREG_API void set_fallback_policy(FallbackPolicy policy);

// Meta kernels may be written in Python. What they raise means that they refuse the arguments,
// except for exceptions that this filter recognizes: an interrupt of the program, which reaches the
// caller. The Python package sets it; without one there is no Python.
OPENREG_API void set_interrupt_filter(bool (*filter)(const std::exception&));

// Operators that never fall back, each with the reason: (name, reason).
OPENREG_API std::vector<std::pair<std::string, std::string>> irreplaceable_operators();

}  // namespace openreg

#endif  // ATEN_FALLBACK_FALLBACK_H_
