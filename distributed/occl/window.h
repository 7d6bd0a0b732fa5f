// SPDX-License-Identifier: BSD-3-Clause
//
// window.h - symmetric memory: memory of the same size on each rank, which all ranks can address.
//
// As with occl.h, a vendor implements this interface with its own collective library. The caller
// allocates each rank's memory, shares it (orIpcExport, orIpcImport) and passes the addresses. A
// window provides the parts that need kernels: signals, barriers, and collectives that read and
// write the peers' memory directly.
//
// Ownership. The caller owns all memory and must keep it until occlWindowDestroy succeeds. A window
// belongs to one rank.
//
// Signals. A signal pad is an array of uint32 that is zero while unused. A signal from rank
// `source` sets word [channel * ranks + source] of the receiving rank to 1; the wait for the signal
// resets the word to 0. A second signal waits until the first one has been consumed. Channels are
// independent of each other. The collectives below use channel 0.
//
// Threads and streams. Any thread may call any function. Operations are enqueued on `stream`, and
// the call returns at once. They can be captured in a graph, which all ranks must then replay in
// the same order.
//
// Errors. A function returns the errors that it can detect itself. A peer that is late, has exited,
// or called a different operation causes a kernel error, which the stream's next synchronization
// returns. The window has then failed: all later operations fail, on all ranks. `timeout_ms` counts
// from the start of the operation on the device; 0 means the window's timeout.
#ifndef DISTRIBUTED_OCCL_WINDOW_H_
#define DISTRIBUTED_OCCL_WINDOW_H_

#include <stddef.h>
#include <stdint.h>

#include "distributed/occl/occl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct occlWindow* occlWindow_t;

// The number of bytes of each rank's memory that a window needs for itself. These bytes must
// initially be zero.
#define OCCL_WINDOW_STATE_BYTES 1024

// Identifies this process, so that other processes can check whether it is still running. It may be
// sent by any means.
typedef struct occlProcess {
  unsigned char internal[64];
} occlProcess;
OPENREG_API occlResult_t occlGetProcess(occlProcess* process);

// One rank's memory, as addresses in this process. `signal_pad` and `state` must be aligned to 64
// bytes, and zero when the first rank uses its window.
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
// wait: the caller must ensure that all ranks have mapped each other's memory before the first
// operation.
OPENREG_API occlResult_t occlWindowCreate(occlWindow_t* window, int ranks, int rank,
                                          const occlWindowMember* members,
                                          const occlWindowConfig_t* config);

// Destroys the window. While an operation is running, changes nothing and returns occlInProgress.
// After success the memory is no longer used, and an operation that has not started, for example in
// a later graph replay, fails.
OPENREG_API occlResult_t occlWindowDestroy(occlWindow_t window);

// Ends the waits of all windows in this process and makes later waits fail. Call it before
// orShutdown, which waits for running kernels.
OPENREG_API void occlWindowEndWaits(void);

OPENREG_API occlResult_t occlWindowPutSignal(occlWindow_t window, int peer, int channel,
                                             int64_t timeout_ms, orStream_t stream);
OPENREG_API occlResult_t occlWindowWaitSignal(occlWindow_t window, int peer, int channel,
                                              int64_t timeout_ms, orStream_t stream);
// Enqueues a barrier: all ranks signal each other and wait for each other's signals.
OPENREG_API occlResult_t occlWindowBarrier(occlWindow_t window, int channel, int64_t timeout_ms,
                                           orStream_t stream);

// Collectives on `count` elements in each rank's buffer, `offset` bytes from its start. The offset
// is the same on all ranks. Buffers may be overwritten when the operation is done. All ranks get
// the same bits; float16 and bfloat16 are added in float32.

// Enqueues an all-reduce in which each rank reduces everything. `input` (may be null) is copied
// into the buffer first.
OPENREG_API occlResult_t occlWindowAllReduceOneShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, const void* input, void* output,
                                                    orStream_t stream);

// Enqueues an all-reduce in which each rank reduces one part and writes it into the buffers of all
// ranks. If `output` is not null, it receives the result instead, and each rank's buffer holds only
// a part of the result.
OPENREG_API occlResult_t occlWindowAllReduceTwoShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, void* output,
                                                    orStream_t stream);

// Enqueues a reduce-scatter of rows: each of `rows` rows has `ranks` chunks of `count` elements.
// `output` receives the sum of this rank's chunk for each row.
OPENREG_API occlResult_t occlWindowReduceScatter(occlWindow_t window, size_t offset, size_t rows,
                                                 size_t count, occlDataType_t type, occlRedOp_t op,
                                                 void* output, orStream_t stream);

// An exchange of rows, where only the device knows how many rows go to each rank. `splits` is a
// window with `ranks` int64 values at `splits_offset`; they give the number of rows in the buffer,
// in order, that go to each rank. `output` receives the rows from all ranks, ordered by rank, and
// has space for `output_rows`. `output_splits` receives, as int64, the number of rows from each
// rank, followed by the start positions of these rows.
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
