// SPDX-License-Identifier: BSD-3-Clause
//
// window.h - symmetric memory: each rank has memory of the same size, which all ranks can address.
//
// As with occl.h, a vendor implements this interface with its own collective library. The caller
// allocates each rank's memory, shares it (orIpcExport, orIpcImport) and passes the addresses. A
// window implements the functions that need kernels: signals, barriers, and collectives that read
// and write the peers' memory directly.
//
// Ownership. The caller owns all memory and must keep it until occlWindowDestroy succeeds. Each
// rank has its own window.
//
// Signals. A signal pad is an array of uint32 words that are zero while unused. A signal from rank
// `source` sets word [channel * ranks + source] of the receiving rank to 1. A wait for the signal
// resets the word to 0. A second signal waits until the first one has been consumed. Channels are
// independent of each other. The collectives below use channel 0.
//
// Threads and streams. Any thread may call any function. A call enqueues an operation on `stream`
// and returns immediately. Operations can be captured in a graph, which all ranks must then replay
// in the same order.
//
// Errors. A function returns the errors that it can detect itself. If a peer is late, has exited,
// or called a different operation, the kernel fails, and the next synchronization of the stream
// returns the error. After such an error, the window has failed: all its later operations fail, on
// all ranks. `timeout_ms` starts when the operation starts on the device; 0 means the window's
// timeout.
#ifndef DISTRIBUTED_OCCL_WINDOW_H_
#define DISTRIBUTED_OCCL_WINDOW_H_

#include <stddef.h>
#include <stdint.h>

#include "distributed/occl/occl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct occlWindow* occlWindow_t;

// The number of bytes of each rank's memory that a window reserves for its state. These bytes must
// initially be zero.
#define OCCL_WINDOW_STATE_BYTES 1024

// Identifies this process, so that other processes can check whether it is still running. A program
// may send it by any means.
typedef struct occlProcess {
  unsigned char internal[64];
} occlProcess;
OPENREG_API occlResult_t occlGetProcess(occlProcess* process);

// One rank's memory, as addresses in this process. `signal_pad` and `state` must be aligned to 64
// bytes, and they must be zero when the first rank uses its window.
typedef struct occlWindowMember {
  occlProcess process;
  void* buffer;
  void* signal_pad;
  void* state;
} occlWindowMember;

typedef struct occlWindowConfig {
  size_t buffer_bytes;
  size_t signal_pad_bytes;
  int64_t timeout_ms;  // default for operations; 0 means 30 minutes
} occlWindowConfig_t;

// Creates the window of rank `rank`. `members` has `ranks` entries and is copied. The call does not
// wait. Before the first operation, the caller must ensure that all ranks have mapped each other's
// memory.
OPENREG_API occlResult_t occlWindowCreate(occlWindow_t* window, int ranks, int rank,
                                          const occlWindowMember* members,
                                          const occlWindowConfig_t* config);

// Destroys the window. While an operation is running, changes nothing and returns occlInProgress.
// After success, the window no longer uses the memory. Operations that have not started, for
// example in a later graph replay, then fail.
OPENREG_API occlResult_t occlWindowDestroy(occlWindow_t window);

// Ends the waits of all windows in this process and makes later waits fail. Must be called before
// orShutdown, which waits for running kernels.
OPENREG_API void occlWindowEndWaits(void);

OPENREG_API occlResult_t occlWindowPutSignal(occlWindow_t window, int peer, int channel,
                                             int64_t timeout_ms, orStream_t stream);
OPENREG_API occlResult_t occlWindowWaitSignal(occlWindow_t window, int peer, int channel,
                                              int64_t timeout_ms, orStream_t stream);
// Enqueues a barrier, in which all ranks signal each other and wait for each other's signals.
OPENREG_API occlResult_t occlWindowBarrier(occlWindow_t window, int channel, int64_t timeout_ms,
                                           orStream_t stream);

// Collectives on `count` elements in each rank's buffer, `offset` bytes from its start. The offset
// must be the same on all ranks. Buffers may be overwritten when the operation has finished. All
// ranks get identical results. float16 and bfloat16 are added in float32.

// Enqueues an all-reduce in which each rank reduces all elements. `input`, which may be null, is
// first copied into the buffer.
OPENREG_API occlResult_t occlWindowAllReduceOneShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, const void* input, void* output,
                                                    orStream_t stream);

// Enqueues an all-reduce in which each rank reduces one part and writes it into the buffers of all
// ranks. If `output` is not null, it receives the result instead, and each rank's buffer contains
// only this rank's part of the result.
OPENREG_API occlResult_t occlWindowAllReduceTwoShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, void* output,
                                                    orStream_t stream);

// Enqueues a reduce-scatter of rows. Each of `rows` rows consists of `ranks` chunks of `count`
// elements. `output` receives, for each row, the sum of this rank's chunks.
OPENREG_API occlResult_t occlWindowReduceScatter(occlWindow_t window, size_t offset, size_t rows,
                                                 size_t count, occlDataType_t type, occlRedOp_t op,
                                                 void* output, orStream_t stream);

// Enqueues an exchange of rows for which only the device knows the number of rows for each rank.
// `splits` is a window with `ranks` int64 values at `splits_offset`. The i-th value is the number
// of rows for rank i; the rows are in the buffer in the order of the ranks. `output` receives the
// rows from all ranks, ordered by rank, and has room for `output_rows` rows. `output_splits`
// receives, as int64, the number of rows from each rank, followed by the start positions of these
// rows.
typedef struct occlRows {
  size_t bytes;        // size of one row
  size_t input_rows;   // number of rows in the buffer
  size_t output_rows;  // number of rows for which `output` has space
} occlRows;
OPENREG_API occlResult_t occlWindowAllToAllV(occlWindow_t window, size_t offset,
                                             occlWindow_t splits, size_t splits_offset,
                                             const occlRows* rows, void* output,
                                             void* output_splits, orStream_t stream);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // DISTRIBUTED_OCCL_WINDOW_H_
