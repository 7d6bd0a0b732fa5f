// SPDX-License-Identifier: BSD-3-Clause
//
// window.h - symmetric memory: the same amount of memory on each rank, which all ranks can address.
//
// Part of the interface that a vendor implements by its own collective library, as occl.h. The
// caller allocates the memory of each rank, shares it (orIpcExport, orIpcImport) and tells the
// addresses; a window has what needs kernels: signals, barriers, and collectives that read and
// write the peers' memory directly.
//
// Ownership. The caller owns all memory, and must keep it until occlWindowDestroy succeeds. A
// window belongs to one rank.
//
// Signals. A signal pad is an array of uint32, zero while nobody uses it: word [channel * ranks +
// source] of a rank is set to 1 by a signal of rank `source`, and back to 0 by the wait for it.
// A second signal waits until the first one was taken. Work on different channels is independent.
// The collectives below use channel 0.
//
// Threads and streams. Every function may be called from every thread. Operations are enqueued on
// `stream` and return at once; they can be captured in a graph, which all ranks must replay alike.
//
// Errors. A function returns what it finds wrong by itself. A peer that does not come in time, has
// ended, or asks for something else is the error of the kernel: the next synchronization of the
// stream returns it. The window is over then: all later operations fail, on all ranks.
// `timeout_ms` counts from the beginning of the operation on the device; 0: the window's timeout.
#ifndef DISTRIBUTED_OCCL_WINDOW_H_
#define DISTRIBUTED_OCCL_WINDOW_H_

#include <stddef.h>
#include <stdint.h>

#include "distributed/occl/occl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct occlWindow* occlWindow_t;

// Bytes that a window needs of each rank's memory for itself. They must be zero at first.
#define OCCL_WINDOW_STATE_BYTES 1024

// Names this process, so that others can tell whether it still runs. It may travel by any way.
typedef struct occlProcess {
  unsigned char internal[64];
} occlProcess;
OPENREG_API occlResult_t occlGetProcess(occlProcess* process);

// The memory of a rank, by addresses of this process. `signal_pad` and `state` must be aligned to
// 64 bytes, and zero when the first rank uses its window.
typedef struct occlWindowMember {
  occlProcess process;
  void* buffer;
  void* signal_pad;
  void* state;
} occlWindowMember;

typedef struct occlWindowConfig {
  size_t buffer_bytes;
  size_t signal_pad_bytes;
  int64_t timeout_ms;  // of operations without their own; 0: 30 minutes
} occlWindowConfig_t;

// `members` has `ranks` entries and is copied. Does not wait: the caller sees to it that all ranks
// have addressed each other's memory before the first operation.
OPENREG_API occlResult_t occlWindowCreate(occlWindow_t* window, int ranks, int rank,
                                          const occlWindowMember* members,
                                          const occlWindowConfig_t* config);

// occlInProgress while an operation runs: the window is as before. Otherwise the memory is not used
// from then on: an operation that has not begun, in the replay of a graph for instance, fails.
OPENREG_API occlResult_t occlWindowDestroy(occlWindow_t window);

// Ends the waits of all windows of this process, and fails their later ones: before orShutdown,
// which waits for the kernels that run.
OPENREG_API void occlWindowEndWaits(void);

OPENREG_API occlResult_t occlWindowPutSignal(occlWindow_t window, int peer, int channel,
                                             int64_t timeout_ms, orStream_t stream);
OPENREG_API occlResult_t occlWindowWaitSignal(occlWindow_t window, int peer, int channel,
                                              int64_t timeout_ms, orStream_t stream);
// All ranks signal each other and wait for each other's signal.
OPENREG_API occlResult_t occlWindowBarrier(occlWindow_t window, int channel, int64_t timeout_ms,
                                           orStream_t stream);

// Collectives of `count` elements that each rank has in its buffer, `offset` bytes from its start
// (the same on all ranks). Buffers may be written again when the operation is done. Results are the
// same bits on all ranks; float16 and bfloat16 are added in float32.

// Each rank reduces all of it. `input` (may be null) is copied into the buffer first.
OPENREG_API occlResult_t occlWindowAllReduceOneShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, const void* input, void* output,
                                                    orStream_t stream);

// Each rank reduces one part and writes it into the buffers of all. If `output` is not null, the
// result is there, and the buffer of each rank keeps a part of it.
OPENREG_API occlResult_t occlWindowAllReduceTwoShot(occlWindow_t window, size_t offset,
                                                    size_t count, occlDataType_t type,
                                                    occlRedOp_t op, void* output,
                                                    orStream_t stream);

// Each of `rows` rows has `ranks` chunks of `count` elements; `output` gets the sum of this rank's
// chunk of each row.
OPENREG_API occlResult_t occlWindowReduceScatter(occlWindow_t window, size_t offset, size_t rows,
                                                 size_t count, occlDataType_t type, occlRedOp_t op,
                                                 void* output, orStream_t stream);

// An exchange of rows whose numbers only the device knows. `splits` is a window that has `ranks`
// int64 at `splits_offset`: how many rows of the first buffer go to each rank, one after the other.
// The rows of all ranks come to `output`, in the order of ranks, which has room for `output_rows`;
// `output_splits` gets how many came from each rank, and behind that where they begin, as int64.
typedef struct occlRows {
  size_t bytes;        // of one row
  size_t input_rows;   // in the buffer
  size_t output_rows;  // most that fit
} occlRows;
OPENREG_API occlResult_t occlWindowAllToAllV(occlWindow_t window, size_t offset,
                                             occlWindow_t splits, size_t splits_offset,
                                             const occlRows* rows, void* output,
                                             void* output_splits, orStream_t stream);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // DISTRIBUTED_OCCL_WINDOW_H_
