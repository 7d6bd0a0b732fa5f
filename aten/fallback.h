// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback: runs every operator that has no kernel of its own on the CPU's kernel.
//
// It is boxed: one function for all operators, which sees the arguments as a stack of IValues.
// It makes the results on the device and queues the kernel on aliases, where it can know what the
// results look like before the kernel has run:
//
//   by precedent   operators whose results follow from the looks of the arguments (precedents.h):
//                  like those of an earlier call with such arguments.
//   by meta        structured operators of torch: their Meta kernel says it. (Where that is written
//                  in Python it takes a tenth of a millisecond: precedents go first.)
//   synchronizing  all others, and calls without a precedent: host_arguments.h shows the arguments
//                  to the kernel, which is queued like any other and waited for, and takes its
//                  results to the device.
//
// OPENREG_FALLBACK_MODE=copy: all take the synchronizing path, with copies instead of aliases.
// Nothing about it is silent: each operator has counters, and a policy says whether falling back is
// allowed at all (OPENREG_FALLBACK=silent|warn|error; one for the process).
// Threads: any.
#ifndef ATEN_FALLBACK_H_
#define ATEN_FALLBACK_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg {

// The boxed function itself, for operators that torch's kernels for all backends would get first.
void fallback(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

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
// except for exceptions that this filter tells: an interrupt of the program, which reaches the
// caller. The Python package sets it; without one there is no Python.
OPENREG_API void set_interrupt_filter(bool (*filter)(const std::exception&));

// Operators that never fall back, each with the reason: (name, reason).
OPENREG_API std::vector<std::pair<std::string, std::string>> irreplaceable_operators();

}  // namespace openreg

#endif  // ATEN_FALLBACK_H_
