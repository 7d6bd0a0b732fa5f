// SPDX-License-Identifier: BSD-3-Clause
//
// occl.h - collective operations between the devices of several ranks, as NCCL has them.
//
// The interface that a vendor implements by its own collective library; the one here connects
// devices of one machine, whose processes (or threads) share memory. Without torch.
//
// A communicator belongs to one rank: one device of one process. Operations are enqueued on a
// stream and return at once; they run in the order of the calls, which has to be the same on all
// ranks. A communicator is used by one thread at a time; different ones by different threads.
//
// Errors. A function returns what it finds wrong by itself. What goes wrong while an operation runs
// (a rank that does not come in time, has ended, or asks for something else) is the error of a
// kernel: the stream's next synchronization returns it, occlCommGetAsyncError tells it earlier, and
// the communicator is over: all its later operations fail with it, on all ranks.
// occlGetLastError() has the words.
#ifndef DISTRIBUTED_OCCL_OCCL_H_
#define DISTRIBUTED_OCCL_OCCL_H_

#include <stddef.h>
#include <stdint.h>

#include "runtime/device/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OCCL_VERSION 10000  // major * 10000 + minor * 100 + patch
#define OCCL_MAX_RANKS 64

typedef struct occlComm* occlComm_t;

// Names a communicator to be. It may travel by any way.
typedef struct occlUniqueId {
  unsigned char internal[128];
} occlUniqueId;

typedef enum occlResult {
  occlSuccess = 0,
  occlDeviceError = 1,      // of a function of the device
  occlSystemError = 2,      // of the operating system
  occlInternalError = 3,    // a defect of this library
  occlInvalidArgument = 4,  // an argument that is never right
  occlInvalidUsage = 5,     // a call that is not right now, or differs from that of another rank
  occlRemoteError = 6,      // another rank has ended, or its communicator is over
  occlInProgress = 7,
  occlTimeout = 8,  // another rank has not come in time
  occlAborted = 9
} occlResult_t;

typedef enum occlDataType {
  occlInt8 = 0,
  occlUint8 = 1,
  occlInt16 = 2,
  occlUint16 = 3,
  occlInt32 = 4,
  occlUint32 = 5,
  occlInt64 = 6,
  occlUint64 = 7,
  occlFloat16 = 8,
  occlBfloat16 = 9,
  occlFloat32 = 10,
  occlFloat64 = 11,
  occlFloat8e4m3 = 12,  // as torch.float8_e4m3fn
  occlFloat8e5m2 = 13,
  occlComplex64 = 14,
  occlComplex128 = 15,
  occlBool = 16,  // a byte, 0 or 1: sums are "or", products "and"
  occlByte = 17,  // of any type, to be moved and not reduced
  occlNumTypes = 18
} occlDataType_t;

// Numbers of 8 and 16 bits are added in float32 and rounded once. Every rank gets the same bits.
typedef enum occlRedOp {
  occlSum = 0,
  occlProd = 1,
  occlMax = 2,
  occlMin = 3,
  occlAvg = 4,
  occlBitAnd = 5,  // of integers and bool
  occlBitOr = 6,
  occlBitXor = 7,
  occlNumOps = 8  // numbers from here on: occlRedOpCreatePreMulSum
} occlRedOp_t;

typedef struct occlConfig {
  int64_t timeout_ms;  // of each operation, from its beginning on the device; 0: 30 minutes
  // What messages call the ranks, where they are part of something larger; null: their numbers.
  const int* labels;
} occlConfig_t;

OPENREG_API occlResult_t occlGetVersion(int* version);
OPENREG_API const char* occlGetErrorString(occlResult_t result);
// Of the last call of this thread that failed: what was asked, what was found, what to do.
OPENREG_API const char* occlGetLastError(void);

// ----------------------------------------------------------------------------- communicators

// Called by one process, which lives until all ranks have their communicator.
OPENREG_API occlResult_t occlGetUniqueId(occlUniqueId* id);

// Makes the communicator of `rank`, for the thread's current device; waits until all `nranks` have
// called it. `config` may be null.
OPENREG_API occlResult_t occlCommInitRank(occlComm_t* comm, int nranks, occlUniqueId id, int rank);
OPENREG_API occlResult_t occlCommInitRankConfig(occlComm_t* comm, int nranks, occlUniqueId id,
                                                int rank, const occlConfig_t* config);

// Makes a communicator of those ranks of `comm` that give the same color, in the order of their
// keys. All ranks of `comm` call it. A negative color (occlSplitNoColor) gets none: null.
#define occlSplitNoColor (-1)
OPENREG_API occlResult_t occlCommSplit(occlComm_t comm, int color, int key, occlComm_t* split,
                                       const occlConfig_t* config);

// Waits until all operations of this rank are done, and says so to the others. After it, only
// occlCommDestroy.
OPENREG_API occlResult_t occlCommFinalize(occlComm_t comm);
// Gives the communicator back; what is still enqueued runs to its end first.
OPENREG_API occlResult_t occlCommDestroy(occlComm_t comm);
// Ends all operations, on all ranks, with occlAborted. From any thread, also while another one
// waits in a function of the communicator; which is why the handle stays, unlike NCCL's, until
// occlCommDestroy.
OPENREG_API occlResult_t occlCommAbort(occlComm_t comm);
// The same, with words that the error of each rank has.
OPENREG_API occlResult_t occlCommAbortWithReason(occlComm_t comm, const char* reason);

// occlSuccess, or why the communicator is over. `text` (may be null): in words, until the thread's
// next call.
OPENREG_API occlResult_t occlCommGetAsyncError(occlComm_t comm, occlResult_t* error,
                                               const char** text);
OPENREG_API occlResult_t occlCommSetTimeout(occlComm_t comm, int64_t timeout_ms);
OPENREG_API occlResult_t occlCommCount(occlComm_t comm, int* nranks);
OPENREG_API occlResult_t occlCommUserRank(occlComm_t comm, int* rank);
OPENREG_API occlResult_t occlCommDevice(occlComm_t comm, int* device);

// The sum of scalar * x. `scalar` has the data type of the operation and is read now; the operator
// belongs to the communicator, until it is destroyed.
OPENREG_API occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t* op, const void* scalar,
                                                  occlDataType_t type, occlComm_t comm);
OPENREG_API occlResult_t occlRedOpDestroy(occlRedOp_t op, occlComm_t comm);

// ------------------------------------------------------------------------------- operations
// Buffers are memory of the communicator's device, aligned to their type. An operation may be in
// place: where its input is that part of its output which is this rank's (NCCL's rules). Counts are
// numbers of elements; 0 is allowed, and all ranks still have to come.

OPENREG_API occlResult_t occlAllReduce(const void* send, void* receive, size_t count,
                                       occlDataType_t type, occlRedOp_t op, occlComm_t comm,
                                       orStream_t stream);
// `send` counts on `root` only, `receive` on all.
OPENREG_API occlResult_t occlBroadcast(const void* send, void* receive, size_t count,
                                       occlDataType_t type, int root, occlComm_t comm,
                                       orStream_t stream);
// `receive` counts on `root` only.
OPENREG_API occlResult_t occlReduce(const void* send, void* receive, size_t count,
                                    occlDataType_t type, occlRedOp_t op, int root, occlComm_t comm,
                                    orStream_t stream);
// `receive` has nranks * count elements.
OPENREG_API occlResult_t occlAllGather(const void* send, void* receive, size_t count,
                                       occlDataType_t type, occlComm_t comm, orStream_t stream);
// `send` has nranks * count elements.
OPENREG_API occlResult_t occlReduceScatter(const void* send, void* receive, size_t count,
                                           occlDataType_t type, occlRedOp_t op, occlComm_t comm,
                                           orStream_t stream);
// Both have nranks * count elements; they must not overlap.
OPENREG_API occlResult_t occlAllToAll(const void* send, void* receive, size_t count,
                                      occlDataType_t type, occlComm_t comm, orStream_t stream);
// `receive` (on `root`) has nranks * count elements.
OPENREG_API occlResult_t occlGather(const void* send, void* receive, size_t count,
                                    occlDataType_t type, int root, occlComm_t comm,
                                    orStream_t stream);
// `send` (on `root`) has nranks * count elements.
OPENREG_API occlResult_t occlScatter(const void* send, void* receive, size_t count,
                                     occlDataType_t type, int root, occlComm_t comm,
                                     orStream_t stream);
// Returns on the device when all ranks have come.
OPENREG_API occlResult_t occlBarrier(occlComm_t comm, orStream_t stream);

// Point to point: the n-th receive from a rank with a tag gets what is the n-th send to this rank
// with that tag. occlAnyRank receives from whoever sends first. A send is done when it has been
// received. `source` (may be null): where the rank is written that was received from, before the
// operation is done; it has to live until then.
#define occlAnyRank (-1)
OPENREG_API occlResult_t occlSend(const void* send, size_t count, occlDataType_t type, int peer,
                                  int tag, occlComm_t comm, orStream_t stream);
OPENREG_API occlResult_t occlRecv(void* receive, size_t count, occlDataType_t type, int peer,
                                  int tag, occlComm_t comm, orStream_t stream, int* source);

// What is called between the two is enqueued by the last occlGroupEnd of the thread, as one piece
// of work for each stream: its sends and receives run at the same time, so that two ranks may send
// to each other.
OPENREG_API occlResult_t occlGroupStart(void);
OPENREG_API occlResult_t occlGroupEnd(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // DISTRIBUTED_OCCL_OCCL_H_
