// SPDX-License-Identifier: BSD-3-Clause
//
// The public interface of the fallback. It reports which operators fell back, and specifies whether
// operators may fall back. A boxed function runs every operator that has no device kernel on its
// CPU kernel. The implementation in host_fallback.h works for every device: it copies the arguments
// to the host and the results back.
//
// Fallbacks are always counted per operator. A process-wide policy decides whether they are allowed
// (OPENREG_FALLBACK=silent|warn|error). Any thread may call these functions.
#ifndef ATEN_FALLBACK_FALLBACK_H_
#define ATEN_FALLBACK_FALLBACK_H_

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg {

// Statistics of one operator's fallbacks since the last reset.
struct FallbackRecord {
  std::string name;    // for example "aten::sort.stable"
  uint64_t calls = 0;  // sum of the two counts below
  uint64_t asynchronous = 0;
  uint64_t synchronous = 0;
  uint64_t bytes_in = 0;   // bytes of arguments copied to the host; aliases copy nothing
  uint64_t bytes_out = 0;  // bytes of results copied to the device
  uint64_t ns = 0;         // time on the calling thread, including waits
};

// Returns the records of the operators that fell back at least once, sorted by name.
OPENREG_API std::vector<FallbackRecord> fallback_stats();
OPENREG_API void fallback_reset();

// What happens when an operator falls back: nothing, one warning per operator, or an error
// (NotImplementedError in Python). The error is thrown before the operator has any effect.
enum class FallbackPolicy { kSilent, kWarn, kError };
OPENREG_API FallbackPolicy fallback_policy();
OPENREG_API void set_fallback_policy(FallbackPolicy policy);

// Sets the function that recognizes interrupts of the program, such as KeyboardInterrupt. A Meta
// kernel may be written in Python, and an exception from it normally means that it rejects the
// arguments. But if the filter returns true, the exception propagates to the caller. The Python
// package sets the filter; without the package, no Python code runs.
OPENREG_API void set_interrupt_filter(bool (*filter)(const std::exception&));

// Returns the operators that never fall back, as pairs (name, reason).
OPENREG_API std::vector<std::pair<std::string, std::string>> irreplaceable_operators();

}  // namespace openreg

#endif  // ATEN_FALLBACK_FALLBACK_H_
