// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/error.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "runtime/c10/shutdown.h"

namespace openreg {
namespace {

// What travels with a stream's error: a heap copy of the exception that the kernel threw.
using Payload = std::exception_ptr;

void drop_payload(void* payload) {
  std::unique_ptr<Payload>(static_cast<Payload*>(payload)).reset();
}

std::string message_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

// Throws the kernel's exception with its type kept; what the device knows of the launch is added as
// context, which c10::Error shows below the message.
[[noreturn]] void rethrow_from_kernel(const std::exception_ptr& exception,
                                      const std::string& detail) {
  try {
    std::rethrow_exception(exception);
  } catch (c10::Error& error) {
    error.add_context(detail);
    throw;
  }
}

}  // namespace

void throw_error(orError_t error) {
  while (error == orErrorShutdown && ends_on_another_thread()) {
    (void)::pause();  // until the process is gone; a signal handler may end one pause
  }
  const std::string detail = orGetLastErrorDetail();
  if (error == orErrorLaunchFailure) {
    const std::unique_ptr<Payload> payload(static_cast<Payload*>(orTakeErrorPayload()));
    if (payload != nullptr) {
      rethrow_from_kernel(*payload, detail);
    }
  }
  TORCH_CHECK_WITH(OutOfMemoryError, error != orErrorOutOfMemory, detail);
  TORCH_CHECK(error != orErrorInvalidDevice, "The device index is out of range. ", detail);
  TORCH_CHECK(error != orErrorForked,
              "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with "
              "multiprocessing, you must use the 'spawn' start method");
  TORCH_CHECK(false, detail.empty() ? orGetErrorString(error) : detail.c_str());
}

orError_t fail_kernel(std::exception_ptr exception) noexcept {
  try {
    const std::string message = message_of(exception);
    auto payload = std::make_unique<Payload>(std::move(exception));
    return orKernelFail(orErrorLaunchFailure, message.c_str(), payload.release(), &drop_payload);
  } catch (...) {  // no memory for the payload: the kind of the error is lost, not the error
    return orKernelFail(orErrorLaunchFailure, "out of host memory while a kernel failed", nullptr,
                        nullptr);
  }
}

}  // namespace openreg
