// SPDX-License-Identifier: BSD-3-Clause
//
// The names and texts of errors. They are the same in every driver.
#include "runtime/device/openreg.h"

namespace {

struct ErrorText {
  orError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {orSuccess, "orSuccess", "no error"},
    {orErrorUnknown, "orErrorUnknown", "unknown error"},
    {orErrorNotReady, "orErrorNotReady", "not ready"},
    {orErrorInvalidValue, "orErrorInvalidValue", "invalid argument"},
    {orErrorInvalidDevice, "orErrorInvalidDevice", "invalid device index"},
    {orErrorInvalidHandle, "orErrorInvalidHandle", "invalid stream or event"},
    {orErrorInvalidDevicePointer, "orErrorInvalidDevicePointer", "invalid device pointer"},
    {orErrorInvalidCopy, "orErrorInvalidCopy", "invalid range or direction of a copy"},
    {orErrorOutOfMemory, "orErrorOutOfMemory", "out of memory"},
    {orErrorSystem, "orErrorSystem", "the operating system refused"},
    {orErrorNotPermitted, "orErrorNotPermitted", "not permitted inside a kernel or callback"},
    {orErrorForked, "orErrorForked", "device used in a forked child"},
    {orErrorLaunchFailure, "orErrorLaunchFailure", "a kernel failed"},
    {orErrorAlreadyRegistered, "orErrorAlreadyRegistered", "host memory is pinned already"},
    {orErrorNotRegistered, "orErrorNotRegistered", "host memory is not registered"},
    {orErrorNotSupported, "orErrorNotSupported", "not supported"},
    {orErrorShutdown, "orErrorShutdown", "the process is exiting"},
    {orErrorCaptureUnsupported, "orErrorCaptureUnsupported", "not supported during a capture"},
    {orErrorCaptureInvalidated, "orErrorCaptureInvalidated", "the capture is invalid"},
    {orErrorCaptureUnjoined, "orErrorCaptureUnjoined", "a captured stream was not joined"},
    {orErrorCaptureIsolation, "orErrorCaptureIsolation", "a capture depends on other work"},
    {orErrorCaptureWrongThread, "orErrorCaptureWrongThread", "another thread's capture"},
    {orErrorProcessEnded, "orErrorProcessEnded", "another process ended"},
};

const ErrorText* Find(orError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

OPENREG_API const char* orGetErrorName(orError_t error) {
  const auto* entry = Find(error);
  return entry ? entry->name : "unrecognized error";
}

OPENREG_API const char* orGetErrorString(orError_t error) {
  const auto* entry = Find(error);
  return entry ? entry->text : "unrecognized error";
}

}  // extern "C"
