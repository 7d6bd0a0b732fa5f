// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/error.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/allocator/error.h"
#include "runtime/c10/shutdown.h"

namespace openreg {
namespace {

std::atomic<RethrowKernelException> rethrow_kernel_exception{nullptr};

}  // namespace

void set_kernel_exception_hook(RethrowKernelException rethrow) {
  rethrow_kernel_exception.store(rethrow, std::memory_order_release);
}

void throw_error(orError_t error, const char* call) {
  while (error == orErrorShutdown && ends_on_another_thread()) {
    (void)::pause();  // wait until the process exits; a signal may end a single pause()
  }
  const std::string detail = allocator::driver_text(error, call);
  if (error == orErrorLaunchFailure) {
    if (const RethrowKernelException rethrow =
            rethrow_kernel_exception.load(std::memory_order_acquire);
        rethrow != nullptr) {
      rethrow();
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(error != orErrorNotSupported, detail);
  TORCH_CHECK_WITH(OutOfMemoryError, error != orErrorOutOfMemory, detail);
  TORCH_CHECK(error != orErrorInvalidDevice, "The device index is out of range. ", detail);
  TORCH_CHECK(error != orErrorForked,
              "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with "
              "multiprocessing, you must use the 'spawn' start method");
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error, detail);
}

bool driver_supports(orError_t error) {
  if (error == orErrorNotSupported) {
    (void)orGetLastError();
    return false;
  }
  OPENREG_CHECK(error);
  return true;
}

}  // namespace openreg
