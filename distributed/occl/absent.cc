// SPDX-License-Identifier: BSD-3-Clause
//
// Stubs for the functions of occl.h and window.h. They are for a build without a collective
// library, because its driver cannot share memory between processes. Each function returns
// occlSystemError.
#include "distributed/occl/occl.h"
#include "distributed/occl/window.h"

extern "C" {

OPENREG_API const char* occlGetErrorString(occlResult_t) { return "no collective library"; }

OPENREG_API const char* occlGetLastError(void) {
  return "occl: this build's driver cannot share memory between processes, so there are no "
         "collectives: use backend \"gloo\" with CPU tensors";
}

OPENREG_API void occlWindowEndWaits(void) {}

OPENREG_API occlResult_t occlGetVersion(int*) { return occlSystemError; }
OPENREG_API occlResult_t occlGetUniqueId(occlUniqueId*) { return occlSystemError; }
OPENREG_API occlResult_t occlCommInitRank(occlComm_t*, int, occlUniqueId, int) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlCommInitRankConfig(occlComm_t*, int, occlUniqueId, int,
                                                const occlConfig_t*) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlCommSplit(occlComm_t, int, int, occlComm_t*, const occlConfig_t*) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlCommFinalize(occlComm_t) { return occlSystemError; }
OPENREG_API occlResult_t occlCommSuspend(occlComm_t) { return occlSystemError; }
OPENREG_API occlResult_t occlCommResume(occlComm_t) { return occlSystemError; }
OPENREG_API occlResult_t occlCommMemoryStats(occlComm_t, occlMemoryStats_t*) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlCommDestroy(occlComm_t) { return occlSystemError; }
OPENREG_API occlResult_t occlCommAbort(occlComm_t) { return occlSystemError; }
OPENREG_API occlResult_t occlCommAbortWithReason(occlComm_t, const char*) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlCommGetAsyncError(occlComm_t, occlResult_t*, const char**) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlCommSetTimeout(occlComm_t, int64_t) { return occlSystemError; }
OPENREG_API occlResult_t occlCommCount(occlComm_t, int*) { return occlSystemError; }
OPENREG_API occlResult_t occlCommUserRank(occlComm_t, int*) { return occlSystemError; }
OPENREG_API occlResult_t occlCommDevice(occlComm_t, int*) { return occlSystemError; }
OPENREG_API occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t*, const void*, occlDataType_t,
                                                  occlComm_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlRedOpDestroy(occlRedOp_t, occlComm_t) { return occlSystemError; }
OPENREG_API occlResult_t occlAllReduce(const void*, void*, size_t, occlDataType_t, occlRedOp_t,
                                       occlComm_t, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlBroadcast(const void*, void*, size_t, occlDataType_t, int, occlComm_t,
                                       orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlReduce(const void*, void*, size_t, occlDataType_t, occlRedOp_t, int,
                                    occlComm_t, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlAllGather(const void*, void*, size_t, occlDataType_t, occlComm_t,
                                       orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlReduceScatter(const void*, void*, size_t, occlDataType_t, occlRedOp_t,
                                           occlComm_t, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlAllToAll(const void*, void*, size_t, occlDataType_t, occlComm_t,
                                      orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlGather(const void*, void*, size_t, occlDataType_t, int, occlComm_t,
                                    orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlScatter(const void*, void*, size_t, occlDataType_t, int, occlComm_t,
                                     orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlBarrier(occlComm_t, orStream_t) { return occlSystemError; }
OPENREG_API occlResult_t occlSend(const void*, size_t, occlDataType_t, int, int, occlComm_t,
                                  orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlRecv(void*, size_t, occlDataType_t, int, int, occlComm_t, orStream_t,
                                  int*) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlGroupStart(void) { return occlSystemError; }
OPENREG_API occlResult_t occlGroupEnd(void) { return occlSystemError; }
OPENREG_API occlResult_t occlGetProcess(occlProcess*) { return occlSystemError; }
OPENREG_API occlResult_t occlWindowCreate(occlWindow_t*, int, int, const occlWindowMember*,
                                          const occlWindowConfig_t*) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowDestroy(occlWindow_t) { return occlSystemError; }
OPENREG_API occlResult_t occlWindowPutSignal(occlWindow_t, int, int, int64_t, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowWaitSignal(occlWindow_t, int, int, int64_t, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowBarrier(occlWindow_t, int, int64_t, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowAllReduceOneShot(occlWindow_t, size_t, size_t, occlDataType_t,
                                                    occlRedOp_t, const void*, void*, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowAllReduceTwoShot(occlWindow_t, size_t, size_t, occlDataType_t,
                                                    occlRedOp_t, void*, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowReduceScatter(occlWindow_t, size_t, size_t, size_t,
                                                 occlDataType_t, occlRedOp_t, void*, orStream_t) {
  return occlSystemError;
}
OPENREG_API occlResult_t occlWindowAllToAllV(occlWindow_t, size_t, occlWindow_t, size_t,
                                             const occlRows*, void*, void*, orStream_t) {
  return occlSystemError;
}

}  // extern "C"
