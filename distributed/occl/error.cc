// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/error.h"

namespace openreg::occl {
namespace {

thread_local std::string last_error;

}  // namespace

Status DeviceStatus(orError_t error) {
  return error == orSuccess ? Status() : Error(occlDeviceError, orGetLastErrorDetail());
}

occlResult_t Return(const Status& status) {
  if (!status.ok()) {
    last_error = status.text;
  }
  return status.result;
}

extern "C" {

OPENREG_API const char* occlGetLastError(void) { return last_error.c_str(); }

OPENREG_API const char* occlGetErrorString(occlResult_t result) {
  switch (result) {
    case occlSuccess:
      return "no error";
    case occlDeviceError:
      return "a device function failed";
    case occlSystemError:
      return "a system call failed";
    case occlInternalError:
      return "internal error";
    case occlInvalidArgument:
      return "invalid argument";
    case occlInvalidUsage:
      return "invalid usage";
    case occlRemoteError:
      return "another rank has exited or failed";
    case occlInProgress:
      return "in progress";
    case occlTimeout:
      return "another rank did not arrive in time";
    case occlAborted:
      return "the communicator was aborted";
  }
  return "unknown result";
}

}  // extern "C"
}  // namespace openreg::occl
