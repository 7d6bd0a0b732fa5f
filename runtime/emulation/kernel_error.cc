// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/emulation/kernel_error.h"

#include <c10/util/Exception.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

#include "runtime/c10/error.h"
#include "runtime/diagnostics/launch_site.h"

namespace openreg {
namespace {

// The payload of a stream's error: the kernel's exception and, if launch sites are enabled, its
// launch site.
struct Payload {
  std::exception_ptr exception;
  CallStack site;
};

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

// Returns the driver's description of the launch, followed by its launch site. If the launch site
// is unknown and launches do not block, describes how to find it instead.
std::string describe_launch(const Payload& payload) {
  std::string text = orGetLastErrorDetail();
  // Remove the message from the text, because the exception already contains it.
  const std::string message = ": " + message_of(payload.exception);
  if (text.ends_with(message)) {
    text.resize(text.size() - message.size());
  }
  const std::string site = to_text(payload.site);
  if (!site.empty()) {
    return text + ". It was launched at (most recent call last):\n" + site;
  }
  int blocking = 0;
  if (orGetLaunchBlocking(&blocking) == orSuccess && blocking != 0) {
    return text;
  }
  return text +
         ". Kernels run later than they are launched: OPENREG_LAUNCH_SITES=1 shows where that was, "
         "OPENREG_LAUNCH_BLOCKING=1 raises the error there";
}

// Throws the kernel's exception with its original type. The launch is added as context, which
// c10::Error prints below the message. A plain std::runtime_error becomes a c10::Error; torch
// converts both of them to RuntimeError.
[[noreturn]] void rethrow_from_kernel(const Payload& payload) {
  try {
    std::rethrow_exception(payload.exception);
  } catch (c10::Error& error) {
    error.add_context(describe_launch(payload));
    throw;
  } catch (const std::runtime_error& error) {
    TORCH_CHECK(typeid(error) != typeid(std::runtime_error), error.what(), " (",
                describe_launch(payload), ")");
    throw;
  }
}

// Rethrows the exception of the error that the calling thread's last call returned.
void rethrow_last_error() {
  const std::unique_ptr<Payload> payload(static_cast<Payload*>(orTakeErrorPayload()));
  if (payload != nullptr) {
    rethrow_from_kernel(*payload);
  }
}

[[maybe_unused]] const bool registered = (set_kernel_exception_hook(&rethrow_last_error), true);

}  // namespace

orError_t fail_kernel(std::exception_ptr exception) noexcept {
  try {
    const std::string message = message_of(exception);
    auto payload = std::make_unique<Payload>(Payload{std::move(exception), current_launch_site()});
    return orKernelFail(orErrorLaunchFailure, message.c_str(), payload.release(), &drop_payload);
  } catch (...) {  // no memory for the payload, so the type of the exception is lost
    return orKernelFail(orErrorLaunchFailure, "out of host memory while a kernel failed", nullptr,
                        nullptr);
  }
}

}  // namespace openreg
