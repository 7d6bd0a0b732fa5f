// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for kernels and host functions.
#include "runtime/device/activity.h"
#include "runtime/device/error.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/stream.h"
#include "runtime/device/submission.h"
#include "runtime/device/thread.h"
#include "runtime/device/work.h"

namespace openreg::device {
namespace {

constexpr uint32_t kLaunchFlags = orLaunchInline | orLaunchParallel | orLaunchShort |
                                  orLaunchMoldable | orLaunchHasRepeatable | orLaunchHasCopy;
constexpr uint32_t kWithTeam = orLaunchParallel | orLaunchMoldable;

Command::Place PlaceOf(uint32_t flags) {
  return (flags & orLaunchParallel) != 0                   ? Command::kOnExecutor
         : (flags & orLaunchMoldable) != 0                 ? Command::kMoldable
         : (flags & (orLaunchInline | orLaunchShort)) != 0 ? Command::kAnywhere
                                                           : Command::kOnWorker;
}

}  // namespace

extern "C" {

OPENREG_API orError_t orLaunchKernel(orStream_t handle, orKernel_t kernel, const void* arguments,
                                     size_t size) {
  Submission submission("orLaunchKernel");
  if (const orError_t error = submission.Enter(handle); error != orSuccess) [[unlikely]] {
    return error;
  }
  const orKernelFunction_t function = kernel != nullptr ? kernel->function : nullptr;
  const orLaunchAttributes* const attributes = kernel != nullptr ? kernel->attributes : nullptr;
  const uint32_t flags = attributes != nullptr ? attributes->flags : 0;
  if (function == nullptr || size > OPENREG_MAX_ARGUMENT_BYTES ||
      (arguments == nullptr && size != 0) || (flags & ~kLaunchFlags) != 0) [[unlikely]] {
    return Fail(
        orErrorInvalidValue,
        "orLaunchKernel: kernel is %p, arguments are %p, size is %zu bytes, flags are 0x%x: "
        "the kernel must not be null; the arguments must not be null unless the size is 0; "
        "the size must be at most %d bytes; the flags may be orLaunchInline "
        "(0x1), orLaunchParallel (0x2), orLaunchShort (0x4), orLaunchMoldable (0x8), "
        "orLaunchHasRepeatable (0x10) and orLaunchHasCopy (0x20)",
        reinterpret_cast<void*>(function), arguments, size, flags, OPENREG_MAX_ARGUMENT_BYTES);
  }
  Work work{Command::kKernel, PlaceOf(flags)};
  work.may_inline = (flags & (orLaunchInline | kWithTeam)) == orLaunchInline;
  work.work_ns = (flags & kWithTeam) != 0 ? attributes->work_ns : 0;
  work.name = attributes != nullptr ? attributes->name : nullptr;
  work.kernel = function;
  work.arguments = arguments;
  work.size = size;
  work.repeatable = (flags & orLaunchHasRepeatable) != 0 ? attributes->repeatable : nullptr;
  work.copy = (flags & orLaunchHasCopy) != 0 ? attributes->copy : nullptr;
  return submission.Submit(work);
}

OPENREG_API orError_t orKernelFail(orError_t error, const char* message, void* payload,
                                   void (*drop)(void* payload)) {
  Stream* stream = thread_state.running;
  if (stream == nullptr) {
    return Fail(orErrorNotPermitted, "orKernelFail: this thread is not running a kernel");
  }
  const orError_t kept = error == orSuccess ? orErrorLaunchFailure : error;
  stream->KeepFailure(kept, message, payload, drop);
  return kept;
}

OPENREG_API orError_t orLaunchHostFunc(orStream_t handle, orHostFn_t function, void* data) {
  Submission submission("orLaunchHostFunc");
  if (const orError_t error = submission.Enter(handle); error != orSuccess) {
    return error;
  }
  if (function == nullptr) {
    return Fail(orErrorInvalidValue, "orLaunchHostFunc: function is null: pass a host function");
  }
  Work work{Command::kHostFunction, Command::kOnWorker};
  work.function = function;
  work.data = data;
  return submission.Submit(work);
}

OPENREG_API int orLaunchReadsCopy(void) {
  return (mode.load(std::memory_order_relaxed) & (kTracing | kCapturing)) != 0 ? 1 : 0;
}

OPENREG_API int orKernelHasTeam(void) { return thread_state.has_team; }

OPENREG_API int orInKernel(void) { return thread_state.running != nullptr; }

OPENREG_API int orKernelOnHost(void) {
  return thread_state.running != nullptr && !thread_state.of_device;
}

}  // extern "C"
}  // namespace openreg::device
