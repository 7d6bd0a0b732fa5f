// SPDX-License-Identifier: BSD-3-Clause
//
// error.h - the result of an internal function, with an error message. It is a plain value.
#ifndef DISTRIBUTED_OCCL_ERROR_H_
#define DISTRIBUTED_OCCL_ERROR_H_

#include <string>
#include <utility>

#include "distributed/occl/occl.h"

namespace openreg::occl {

struct [[nodiscard]] Status {
  occlResult_t result = occlSuccess;
  std::string text;

  bool ok() const { return result == occlSuccess; }
};

inline Status Error(occlResult_t result, std::string text) { return {result, std::move(text)}; }

// Returns the status for a device function that has just failed with `error` on this thread.
Status DeviceStatus(orError_t error);

// Converts a status to the API's result, and stores its message for occlGetLastError.
occlResult_t Return(const Status& status);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_ERROR_H_
