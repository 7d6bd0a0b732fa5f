// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the tier 3 functions: graphs, memory and events that processes share, and activity
// records. Each function returns orErrorNotSupported. There are three exceptions: functions that
// callers use before they know what the driver supports.
#include <utility>

#include "runtime/minimal/driver.h"

#define NOT_SUPPORTED(function, ...)                                                               \
  OPENREG_API orError_t function(__VA_ARGS__) {                                                    \
    return Fail(orErrorNotSupported, "%s: this driver does not support this function", #function); \
  }

namespace openreg::minimal {

extern "C" {

// Callers use this function before they know whether the driver supports graphs.
OPENREG_API orError_t orStreamGetCaptureInfo(orStream_t, orStreamCaptureStatus* status,
                                             uint64_t* id) {
  RETURN_IF_NULL(status);
  *status = orStreamCaptureStatusNone;
  if (id != nullptr) {
    *id = 0;
  }
  return orSuccess;
}
OPENREG_API orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode) {
  static thread_local orStreamCaptureMode thread_mode = orStreamCaptureModeGlobal;
  RETURN_IF_NULL(mode);
  std::swap(thread_mode, *mode);
  return orSuccess;
}
NOT_SUPPORTED(orStreamBeginCapture, orStream_t, orStreamCaptureMode)
NOT_SUPPORTED(orStreamEndCapture, orStream_t, orGraph_t*)
NOT_SUPPORTED(orGraphLaunch, orGraph_t, orStream_t)
NOT_SUPPORTED(orGraphDestroy, orGraph_t)
NOT_SUPPORTED(orGraphGetNodeCount, orGraph_t, size_t*)
NOT_SUPPORTED(orGraphDebugDotPrint, orGraph_t, const char*)

NOT_SUPPORTED(orIpcExport, orIpcMemoryHandle*, void*, size_t, orStream_t)
NOT_SUPPORTED(orIpcImport, void**, const orIpcMemoryHandle*, orStream_t)
NOT_SUPPORTED(orIpcRelease, void*, orStream_t)
NOT_SUPPORTED(orIpcIsExported, int*, const void*, size_t)
NOT_SUPPORTED(orIpcGetEventHandle, orIpcEventHandle*, orEvent_t)
NOT_SUPPORTED(orIpcOpenEventHandle, orEvent_t*, const orIpcEventHandle*)

OPENREG_API int orActivityIsEnabled(void) { return 0; }
NOT_SUPPORTED(orActivityRegisterCallbacks, orActivityBufferRequested_t, orActivityBufferCompleted_t)
NOT_SUPPORTED(orActivityEnableTracing, void)
NOT_SUPPORTED(orActivityDisableTracing, void)
NOT_SUPPORTED(orActivityFlushAll, void)
NOT_SUPPORTED(orActivityGetCounts, uint64_t*, uint64_t*)
NOT_SUPPORTED(orActivityPushExternalCorrelationId, orActivityIdKind, uint64_t)
NOT_SUPPORTED(orActivityPopExternalCorrelationId, orActivityIdKind, uint64_t*)

}  // extern "C"
}  // namespace openreg::minimal
