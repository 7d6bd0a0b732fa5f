// SPDX-License-Identifier: BSD-3-Clause
//
// occl.h - collective operations between the devices of several ranks. The API is modeled on NCCL.
//
// A vendor implements this interface with its own collective library. The implementation in this
// folder connects devices on one machine, whose processes (or threads) share memory. It does not
// depend on torch.
//
// A communicator belongs to one rank, which is one device of one process. A call enqueues an
// operation on a stream and returns immediately. Operations run in the order of the calls, which
// must be the same on all ranks. Only one thread at a time may use a communicator; different
// threads may use different communicators.
//
// Errors. A function returns the errors that it can detect itself. An error while an operation runs
// (another rank is late, has exited, or called a different operation) is a kernel error: the next
// synchronization of the stream returns it. occlCommGetAsyncError can return it earlier. After such
// an error, the communicator has failed: all its later operations fail with the same error, on all
// ranks. occlGetLastError() returns the message.
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

// Identifies a future communicator. A program may send it to the other ranks by any means.
typedef struct occlUniqueId {
  unsigned char internal[128];
} occlUniqueId;

typedef enum occlResult {
  occlSuccess = 0,
  occlDeviceError = 1,      // a device function failed
  occlSystemError = 2,      // a system call failed
  occlInternalError = 3,    // a bug in this library
  occlInvalidArgument = 4,  // an argument is invalid in any state
  occlInvalidUsage = 5,     // the call is not valid now, or differs from another rank's call
  occlRemoteError = 6,      // another rank has exited, or its communicator has failed
  occlInProgress = 7,
  occlTimeout = 8,  // another rank did not arrive in time
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
  occlFloat8e4m3 = 12,  // like torch.float8_e4m3fn
  occlFloat8e5m2 = 13,
  occlComplex64 = 14,
  occlComplex128 = 15,
  occlBool = 16,  // a byte, 0 or 1; a sum is "or", and a product is "and"
  occlByte = 17,  // a byte of an unsupported type; it can be moved but not reduced
  occlNumTypes = 18,
  occlMaxType = 0x7fffffff  // makes every int a valid value, so that the library can check it
} occlDataType_t;

// The reduction operators. 8-bit and 16-bit floats are added in float32 and rounded once. All ranks
// get identical results.
typedef enum occlRedOp {
  occlSum = 0,
  occlProd = 1,
  occlMax = 2,
  occlMin = 3,
  occlAvg = 4,
  occlBitAnd = 5,  // the bit operations support integers and bool
  occlBitOr = 6,
  occlBitXor = 7,
  occlNumOps = 8,  // values from here on come from occlRedOpCreatePreMulSum
  occlMaxOp = 0x7fffffff
} occlRedOp_t;

typedef struct occlConfig {
  int64_t timeout_ms;  // per operation, from its start on the device; 0 means 30 minutes
  // The rank numbers to use in messages, for ranks that are part of a larger group. May be null.
  const int* labels;
} occlConfig_t;

OPENREG_API occlResult_t occlGetVersion(int* version);
OPENREG_API const char* occlGetErrorString(occlResult_t result);
// Returns the message of this thread's last failed call. The message states what was requested,
// what was found, and what to do.
OPENREG_API const char* occlGetLastError(void);

// ----------------------------------------------------------------------------- communicators

// Creates the id for a new communicator. One process calls this function and sends the id to the
// other ranks. The process must live until all ranks have created their communicators.
OPENREG_API occlResult_t occlGetUniqueId(occlUniqueId* id);

// Creates the communicator of `rank` for the thread's current device. Waits until all `nranks`
// ranks have called this function. `config` may be null.
OPENREG_API occlResult_t occlCommInitRank(occlComm_t* comm, int nranks, occlUniqueId id, int rank);
OPENREG_API occlResult_t occlCommInitRankConfig(occlComm_t* comm, int nranks, occlUniqueId id,
                                                int rank, const occlConfig_t* config);

// Creates a communicator for the ranks of `comm` that pass the same color, ordered by their keys.
// All ranks of `comm` must call this function. A rank with a negative color (occlSplitNoColor) gets
// null.
#define occlSplitNoColor (-1)
OPENREG_API occlResult_t occlCommSplit(occlComm_t comm, int color, int key, occlComm_t* split,
                                       const occlConfig_t* config);

// Waits until all operations of this rank have finished. Afterwards, only occlCommDestroy may be
// called.
OPENREG_API occlResult_t occlCommFinalize(occlComm_t comm);
// Waits until the operations of all ranks have finished. Then releases the memory that the
// communicator does not need until occlCommResume: the memory of this rank's slots, and the
// mappings of the other ranks' devices. All ranks must call it. Until occlCommResume, operations
// return occlInvalidUsage. A graph that contains operations can be launched, but its kernel fails,
// and the next synchronization with the stream returns orErrorLaunchFailure.
OPENREG_API occlResult_t occlCommSuspend(occlComm_t comm);
// Maps the other ranks' devices again. Each rank may call this function at any time, and it does
// not wait for the other ranks.
OPENREG_API occlResult_t occlCommResume(occlComm_t comm);

// The memory that a communicator uses in this process, in bytes.
typedef struct occlMemoryStats {
  size_t persistent;   // memory that all ranks share; occlCommSuspend keeps it
  size_t suspendable;  // memory of this rank's slots; 0 after occlCommSuspend
  size_t mapped;       // addresses of the other ranks' devices; 0 after occlCommSuspend
  int suspended;       // 1 between occlCommSuspend and occlCommResume
} occlMemoryStats_t;
OPENREG_API occlResult_t occlCommMemoryStats(occlComm_t comm, occlMemoryStats_t* stats);

// Destroys the communicator after its enqueued operations have finished.
OPENREG_API occlResult_t occlCommDestroy(occlComm_t comm);
// Ends all operations, on all ranks, with occlAborted. Any thread may call this function, even
// while another thread is waiting in a function of the communicator. For this reason, unlike in
// NCCL, the handle stays valid until occlCommDestroy.
OPENREG_API occlResult_t occlCommAbort(occlComm_t comm);
// Ends all operations like occlCommAbort. `reason` appears in the error of each rank.
OPENREG_API occlResult_t occlCommAbortWithReason(occlComm_t comm, const char* reason);

// Sets `error` to occlSuccess, or to the reason why the communicator has failed. `text`, which may
// be null, receives the message. The message is valid until the thread's next call.
OPENREG_API occlResult_t occlCommGetAsyncError(occlComm_t comm, occlResult_t* error,
                                               const char** text);
OPENREG_API occlResult_t occlCommSetTimeout(occlComm_t comm, int64_t timeout_ms);
OPENREG_API occlResult_t occlCommCount(occlComm_t comm, int* nranks);
OPENREG_API occlResult_t occlCommUserRank(occlComm_t comm, int* rank);
OPENREG_API occlResult_t occlCommDevice(occlComm_t comm, int* device);

// Creates the reduction sum(scalar * x). `scalar` points to a value of type `type`, which is read
// during the call. The communicator owns the operator until the operator is destroyed.
OPENREG_API occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t* op, const void* scalar,
                                                  occlDataType_t type, occlComm_t comm);
OPENREG_API occlResult_t occlRedOpDestroy(occlRedOp_t op, occlComm_t comm);

// ------------------------------------------------------------------------------- operations
//
// Buffers are memory of the communicator's device, aligned to their type. As in NCCL, an operation
// is in place if its input is this rank's part of its output. Counts are numbers of elements. A
// count of 0 is allowed, but all ranks must still call the operation.

OPENREG_API occlResult_t occlAllReduce(const void* send, void* receive, size_t count,
                                       occlDataType_t type, occlRedOp_t op, occlComm_t comm,
                                       orStream_t stream);
// Copies the root's `send` to `receive` on all ranks. Other ranks ignore `send`.
OPENREG_API occlResult_t occlBroadcast(const void* send, void* receive, size_t count,
                                       occlDataType_t type, int root, occlComm_t comm,
                                       orStream_t stream);
// Reduces `send` from all ranks into `receive` on `root`. Other ranks ignore `receive`.
OPENREG_API occlResult_t occlReduce(const void* send, void* receive, size_t count,
                                    occlDataType_t type, occlRedOp_t op, int root, occlComm_t comm,
                                    orStream_t stream);
// Copies `send` from all ranks, ordered by rank, to `receive`, which has room for nranks * count
// elements.
OPENREG_API occlResult_t occlAllGather(const void* send, void* receive, size_t count,
                                       occlDataType_t type, occlComm_t comm, orStream_t stream);
// Reduces `send`, which has nranks * count elements, and stores this rank's part in `receive`.
OPENREG_API occlResult_t occlReduceScatter(const void* send, void* receive, size_t count,
                                           occlDataType_t type, occlRedOp_t op, occlComm_t comm,
                                           orStream_t stream);
// Sends the i-th part of `send` to rank i. Both buffers have nranks * count elements and must not
// overlap.
OPENREG_API occlResult_t occlAllToAll(const void* send, void* receive, size_t count,
                                      occlDataType_t type, occlComm_t comm, orStream_t stream);
// Copies `send` from all ranks to `receive` on `root`, which has room for nranks * count elements.
OPENREG_API occlResult_t occlGather(const void* send, void* receive, size_t count,
                                    occlDataType_t type, int root, occlComm_t comm,
                                    orStream_t stream);
// Copies the i-th part of the root's `send`, which has nranks * count elements, to rank i.
OPENREG_API occlResult_t occlScatter(const void* send, void* receive, size_t count,
                                     occlDataType_t type, int root, occlComm_t comm,
                                     orStream_t stream);
// Enqueues an operation that finishes when all ranks have arrived.
OPENREG_API occlResult_t occlBarrier(occlComm_t comm, orStream_t stream);

// Point-to-point operations. The n-th receive from a rank with a given tag matches that rank's n-th
// send to this rank with the same tag. occlAnyRank matches the rank that sends first. A send
// finishes when the message has been received. `source`, which may be null, receives the sender's
// rank before the operation finishes. It must be valid until then.
#define occlAnyRank (-1)
OPENREG_API occlResult_t occlSend(const void* send, size_t count, occlDataType_t type, int peer,
                                  int tag, occlComm_t comm, orStream_t stream);
OPENREG_API occlResult_t occlRecv(void* receive, size_t count, occlDataType_t type, int peer,
                                  int tag, occlComm_t comm, orStream_t stream, int* source);

// Group the calls between these two functions. The thread's outermost occlGroupEnd enqueues the
// calls as one kernel per communicator and stream. The sends and receives in a group run
// concurrently, so two ranks may send to each other.
OPENREG_API occlResult_t occlGroupStart(void);
OPENREG_API occlResult_t occlGroupEnd(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // DISTRIBUTED_OCCL_OCCL_H_
