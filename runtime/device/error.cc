// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/error.h"

#include <cstdarg>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>

#include "runtime/device/kernel_error.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// A thread's last failure. It is too large for static thread-local storage, which is scarce for a
// library that is loaded at run time.
struct ErrorDetail {
  char text[1024] = "";
  std::unique_ptr<KernelError> kernel_error;  // owns the payload until a caller takes it
};

// A plain pointer, because an object of class type would be destroyed too early: destructors of
// other libraries may still make calls that fail.
thread_local ErrorDetail* error_detail = nullptr;

struct DetailOwner {
  ~DetailOwner() { delete std::exchange(error_detail, nullptr); }
};

ErrorDetail& Detail() {
  if (error_detail == nullptr) {
    static thread_local DetailOwner owner;  // deletes error_detail when the thread ends
    (void)owner;
    error_detail = new ErrorDetail;
  }
  return *error_detail;
}

}  // namespace

orError_t Fail(orError_t error, const char* format, ...) {
  ErrorDetail& detail = Detail();
  const int prefix = std::snprintf(detail.text, sizeof(detail.text), "openreg: ");
  va_list values;
  va_start(values, format);
  std::vsnprintf(detail.text + prefix, sizeof(detail.text) - prefix, format, values);
  va_end(values);
  detail.kernel_error.reset();
  thread_state.last_error = error;
  return error;
}

orError_t CheckNotNull(const char* function, std::initializer_list<PointerParameter> parameters) {
  for (const auto& [name, pointer] : parameters) {
    if (pointer == nullptr) [[unlikely]] {
      return Fail(orErrorInvalidValue, "%s: %s must not be null", function, name);
    }
  }
  return orSuccess;
}

orError_t Fail(KernelError* error) {
  ErrorDetail& detail = Detail();
  std::snprintf(
      detail.text, sizeof(detail.text),
      "openreg: kernel %s on stream %u of device %d, after %llu queued commands, failed: %s",
      error->kernel_name(), error->stream, error->device,
      static_cast<unsigned long long>(error->after), error->message.c_str());
  detail.kernel_error.reset(error);
  thread_state.last_error = error->code;
  return error->code;
}

ByteText::ByteText(size_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    std::snprintf(text_, sizeof(text_), "%zu bytes", bytes);
    return;
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) {
    value /= 1024;
  }
  std::snprintf(text_, sizeof(text_), "%.4g %s", value, kUnits[unit]);
}

extern "C" {

OPENREG_API orError_t orGetLastError(void) {
  const orError_t error = thread_state.last_error;
  thread_state.last_error = orSuccess;
  return error;
}

OPENREG_API orError_t orPeekAtLastError(void) { return thread_state.last_error; }

OPENREG_API const char* orGetLastErrorDetail(void) {
  return error_detail != nullptr ? error_detail->text : "";
}

OPENREG_API void* orTakeErrorPayload(void) {
  if (error_detail == nullptr || error_detail->kernel_error == nullptr) {
    return nullptr;
  }
  void* payload = error_detail->kernel_error->TakePayload();
  error_detail->kernel_error.reset();
  return payload;
}

OPENREG_API orError_t orGetVersion(int* version) {
  if (version == nullptr) {
    return Fail(orErrorInvalidValue, "orGetVersion: version is null: pass the address of an int");
  }
  *version = OPENREG_VERSION;
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
