// SPDX-License-Identifier: BSD-3-Clause
//
// The functions of tier 3: graphs, memory and events shared by processes, and activity records.
// Each returns orErrorNotSupported, except those with which callers ask about them.
#include <utility>

#include "runtime/minimal/driver.h"

namespace openreg::minimal {
namespace {

orError_t NotSupported(const char* function) {
  return Fail(orErrorNotSupported, "%s: this driver does not support it", function);
}

}  // namespace

extern "C" {

OPENREG_API orError_t orIpcGetEventHandle(orIpcEventHandle*, orEvent_t) {
  return NotSupported("orIpcGetEventHandle");
}
OPENREG_API orError_t orIpcOpenEventHandle(orEvent_t*, const orIpcEventHandle*) {
  return NotSupported("orIpcOpenEventHandle");
}
OPENREG_API orError_t orIpcExport(orIpcMemoryHandle*, void*, size_t, orStream_t) {
  return NotSupported("orIpcExport");
}
OPENREG_API orError_t orIpcImport(void**, const orIpcMemoryHandle*, orStream_t) {
  return NotSupported("orIpcImport");
}
OPENREG_API orError_t orIpcRelease(void*, orStream_t) { return NotSupported("orIpcRelease"); }
OPENREG_API orError_t orIpcIsExported(int*, const void*, size_t) {
  return NotSupported("orIpcIsExported");
}

// Callers ask this before they know whether there are graphs.
OPENREG_API orError_t orStreamGetCaptureInfo(orStream_t, orStreamCaptureStatus* status,
                                             uint64_t* id) {
  if (status == nullptr) {
    return FailNull("orStreamGetCaptureInfo", "status");
  }
  *status = orStreamCaptureStatusNone;
  if (id != nullptr) {
    *id = 0;
  }
  return orSuccess;
}
OPENREG_API orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode) {
  static thread_local orStreamCaptureMode thread_mode = orStreamCaptureModeGlobal;
  if (mode == nullptr) {
    return FailNull("orThreadExchangeStreamCaptureMode", "mode");
  }
  std::swap(thread_mode, *mode);
  return orSuccess;
}
OPENREG_API orError_t orStreamBeginCapture(orStream_t, orStreamCaptureMode) {
  return NotSupported("orStreamBeginCapture");
}
OPENREG_API orError_t orStreamEndCapture(orStream_t, orGraph_t*) {
  return NotSupported("orStreamEndCapture");
}
OPENREG_API orError_t orGraphLaunch(orGraph_t, orStream_t) { return NotSupported("orGraphLaunch"); }
OPENREG_API orError_t orGraphDestroy(orGraph_t) { return NotSupported("orGraphDestroy"); }
OPENREG_API orError_t orGraphGetNodeCount(orGraph_t, size_t*) {
  return NotSupported("orGraphGetNodeCount");
}
OPENREG_API orError_t orGraphDebugDotPrint(orGraph_t, const char*) {
  return NotSupported("orGraphDebugDotPrint");
}

OPENREG_API orError_t orActivityRegisterCallbacks(orActivityBufferRequested_t,
                                                  orActivityBufferCompleted_t) {
  return NotSupported("orActivityRegisterCallbacks");
}
OPENREG_API orError_t orActivityEnableTracing(void) {
  return NotSupported("orActivityEnableTracing");
}
OPENREG_API orError_t orActivityDisableTracing(void) {
  return NotSupported("orActivityDisableTracing");
}
OPENREG_API int orActivityIsEnabled(void) { return 0; }
OPENREG_API orError_t orActivityFlushAll(void) { return NotSupported("orActivityFlushAll"); }
OPENREG_API orError_t orActivityGetCounts(uint64_t*, uint64_t*) {
  return NotSupported("orActivityGetCounts");
}
OPENREG_API orError_t orActivityPushExternalCorrelationId(orActivityIdKind, uint64_t) {
  return NotSupported("orActivityPushExternalCorrelationId");
}
OPENREG_API orError_t orActivityPopExternalCorrelationId(orActivityIdKind, uint64_t*) {
  return NotSupported("orActivityPopExternalCorrelationId");
}

}  // extern "C"
}  // namespace openreg::minimal
