// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/process.h"

#include "runtime/device/error.h"

namespace openreg::device {

constinit std::atomic<uint32_t> mode{0};

namespace {

constinit std::atomic<Initializer> registered_initializer{nullptr};

}  // namespace

void SetInitializer(Initializer initializer) {
  registered_initializer.store(initializer, std::memory_order_release);
}

orError_t Refuse(const char* function, bool only_reads) {
  const uint32_t now = mode.load(std::memory_order_acquire);
  if ((now & kForked) != 0) {
    return Fail(orErrorForked,
                "%s: the device was used before this process was forked, and a child cannot use "
                "it; start processes with \"spawn\" or \"forkserver\"",
                function);
  }
  if (!only_reads && thread_state.running != nullptr) {
    return Fail(
        orErrorNotPermitted,
        "%s was called inside a kernel or host callback, which must not queue, wait, allocate or "
        "free; call it from another host thread or after the kernel",
        function);
  }
  if (!only_reads && (now & kShutdown) != 0) {
    return Fail(orErrorShutdown, "%s: the process is exiting", function);
  }
  return registered_initializer.load(std::memory_order_acquire)();
}

orError_t EnterRelease(const char* function) {
  return thread_state.running == nullptr || thread_state.releasing
             ? orSuccess
             : Refuse(function, /*only_reads=*/false);
}

}  // namespace openreg::device
