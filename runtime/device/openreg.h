// SPDX-License-Identifier: BSD-3-Clause
//
// openreg.h - the driver interface of OpenReg.
//
// This header is the boundary between the portable packages and a device. A vendor implements it
// for real hardware; the portable packages (allocator, c10, amp, autoload, the device-neutral half
// of compile, python) run on it unchanged. They also include host_wait.h, which declares the hooks
// that run around the waits of host threads. Functions that only the emulated device has are in
// openreg_emulation.h.
//
// Tiers. Each section names the tier of its functions. Tier 1 is required for the first tensor.
// Tier 2 adds concurrency. Tier 3 is optional: a driver may return orErrorNotSupported there.
// docs/device.md lists the callers of each function.
//
// Model. A process sees orGetDeviceCount() devices. Each device has its own memory and any number
// of streams. A stream is a queue that runs its commands in order. Streams, including the default
// stream of a device, are independent of each other unless an event orders them.
//
// Ownership. Handles (orStream_t, orEvent_t) and memory belong to the caller until the matching
// destroy or free call, or orDeviceReset. Handles carry a generation: a stale or foreign handle
// returns orErrorInvalidHandle. A null orStream_t is the default stream of the calling thread's
// current device.
//
// Threads. Every function may be called from every thread unless its comment says otherwise. Inside
// a kernel or a host callback, every function that enqueues, waits, allocates or frees returns
// orErrorNotPermitted. The current device and the last error are per thread.
//
// Errors. Every function that can fail returns an orError_t. orGetLastErrorDetail() returns the
// last error of the calling thread as text: what was requested, what was found, and what to do.
// When a kernel fails, its stream keeps the error. Only the first error is kept, and later kernels
// still run. The next call that synchronizes the stream or its device returns the error once and
// clears it.
//
// Graphs. While a stream is being captured, its commands are recorded in a graph and do not run. A
// call that cannot be recorded, or whose result would depend on work that does not run, returns one
// of the orErrorCapture errors and invalidates the capture. orStreamEndCapture then reports the
// cause.
//
// Processes. If a process forks after the first use of a device, these calls do nothing in the
// child and return orSuccess: free, trim, destroy, release and exit. Every other call that needs a
// device returns orErrorForked, including orGetDevice and orSetDevice. orGetDeviceCount,
// orGetDeviceProperties, the version, the error functions and the launch-blocking switch still
// work. A fork waits for a first use that is in progress in another thread. The child does not keep
// the device's files open. Use the start methods "spawn" or "forkserver".
//
// Environment variables, read by the first call that needs the device:
//   OPENREG_DEVICE_COUNT      number of devices, 1 to OPENREG_MAX_DEVICES; default 2
//   OPENREG_DEVICE_MEMORY     bytes of each device, with an optional suffix K, M, G or T;
//                             default: half of min(RAM, cgroup limit), divided by the devices
//   OPENREG_LAUNCH_BLOCKING   1: every launch waits for its kernel and returns its error
#ifndef RUNTIME_DEVICE_OPENREG_H_
#define RUNTIME_DEVICE_OPENREG_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define OPENREG_API __attribute__((visibility("default")))
#else
#define OPENREG_API
#endif

// Version of this interface: major * 10000 + minor * 100 + patch. A library is compatible with
// callers that were built against the same major version and the same or a smaller minor version.
#define OPENREG_VERSION 30000

#define OPENREG_MAX_DEVICES 16

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------ errors
// Tier 1.

typedef enum orError_t {
  orSuccess = 0,
  orErrorUnknown = 1,
  orErrorNotReady = 2,       // the result of a query: not an error, not recorded as the last error
  orErrorInvalidValue = 3,   // an argument is out of its range
  orErrorInvalidDevice = 4,  // device index outside of 0 .. count-1
  orErrorInvalidHandle = 5,  // stream or event that was destroyed or never existed
  orErrorInvalidDevicePointer = 6,  // pointer outside of any live allocation of the required kind
  orErrorInvalidCopy = 7,     // a copy or fill that exceeds its allocation, or a wrong direction
  orErrorOutOfMemory = 8,     // the device's capacity is used up
  orErrorSystem = 9,          // the operating system refused a request; the detail names the limit
  orErrorNotPermitted = 10,   // call from inside a kernel or a host callback
  orErrorForked = 11,         // device used in the child of a fork
  orErrorLaunchFailure = 12,  // a kernel failed
  orErrorAlreadyRegistered = 13,  // orHostRegister of memory that is already pinned
  orErrorNotRegistered = 14,      // orHostUnregister of memory that is not pinned
  orErrorNotSupported = 15,       // e.g. elapsed time of an event without timing
  orErrorShutdown = 16,           // the process is exiting
  orErrorProcessEnded = 17,       // another process ended before it completed the work awaited here
  // Errors of captures. All except orErrorCaptureWrongThread invalidate the capture.
  orErrorCaptureUnsupported = 18,  // a call that a capture does not allow
  orErrorCaptureInvalidated = 19,  // an earlier call invalidated the stream's capture
  orErrorCaptureUnjoined = 20,     // a forked stream was not joined before the capture ended
  orErrorCaptureIsolation = 21,    // captured work and other work would depend on each other
  orErrorCaptureWrongThread = 22   // another thread began the capture
} orError_t;

// Return static strings, or "unrecognized error" if `error` is not an orError_t.
OPENREG_API const char* orGetErrorName(orError_t error);    // "orErrorInvalidValue"
OPENREG_API const char* orGetErrorString(orError_t error);  // "invalid argument"

// Return the last error of the calling thread. orGetLastError resets it to orSuccess;
// orPeekAtLastError does not.
OPENREG_API orError_t orGetLastError(void);
OPENREG_API orError_t orPeekAtLastError(void);

// Returns one sentence about the last failed call of this thread, which is valid until the next
// call that fails.
OPENREG_API const char* orGetLastErrorDetail(void);

OPENREG_API orError_t orGetVersion(int* version);

// ----------------------------------------------------------------------------------------- devices
// Tier 1; orDeviceReset, the priorities and launch blocking: tier 2.

typedef struct orDeviceProperties {
  char name[64];
  size_t total_memory;                  // in bytes
  size_t allocation_granularity;        // bytes; orMalloc rounds sizes up to it
  int major, minor;                     // compute capability
  int multi_processor_count;            // number of CPU cores that kernels may use
  int max_threads_per_multi_processor;  // threads of kernels that a core runs at the same time
  int warp_size;                        // threads that run in lockstep; 1 if each runs alone
  size_t l2_cache_size;                 // bytes of the last cache before memory; 0 if unknown
  uint8_t uuid[16];  // identifies the device in all processes until the machine restarts
} orDeviceProperties;

// Initializes the driver for this process: reads the environment and reserves the resources of the
// devices. Every other function that needs a device does this on demand; orInit lets a program
// detect problems early. Further calls do nothing.
//   orErrorSystem  the operating system refused a request; the detail names the limit
//   orErrorInvalidValue  an environment variable is invalid; the detail names it
//   orErrorForked  this is the child of a fork after the first use of a device
OPENREG_API orError_t orInit(void);

// Ends the device's threads. Waits for kernels that are running and drops the ones that are queued.
// Called at exit; further calls do nothing. Afterwards, functions that allocate, launch or wait
// return orErrorShutdown, and so does a query of work that was dropped. Other queries still work,
// and memory can still be freed.
OPENREG_API orError_t orShutdown(void);

// These three functions do not initialize the device: they start no thread and map no memory.
OPENREG_API orError_t orGetDeviceCount(int* count);
OPENREG_API orError_t orGetDevice(int* device);
OPENREG_API orError_t orSetDevice(int device);

OPENREG_API orError_t orGetDeviceProperties(orDeviceProperties* properties, int device);

// Gets the number of bytes of the current device that orMalloc can still allocate, and its
// capacity.
OPENREG_API orError_t orMemGetInfo(size_t* free_bytes, size_t* total_bytes);

// Waits for all streams of the current device; returns and clears the first error among them.
OPENREG_API orError_t orDeviceSynchronize(void);

// Waits for all streams of the current device, then destroys its streams and events and frees its
// memory. Pending errors are dropped. All earlier handles and pointers become invalid.
OPENREG_API orError_t orDeviceReset(void);

// Gets the range of priorities for orStreamCreateWithPriority; a lower number is a higher priority.
// When several streams wait for the executor of parallel kernels, the one with the highest priority
// goes first.
OPENREG_API orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest);

// Set and get launch blocking: with 1, each launch waits for its kernel and returns the kernel's
// error. The setting is process-wide.
OPENREG_API orError_t orSetLaunchBlocking(int blocking);
OPENREG_API orError_t orGetLaunchBlocking(int* blocking);

// ------------------------------------------------------------------------------------------ memory
// Tier 1: allocation, attributes, copies and fills, orMemTrim. Tier 2: pinned memory.

typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3,
  orMemcpyDefault = 4  // the driver infers the kind from the pointers
} orMemcpyKind;

typedef enum orMemoryType {
  orMemoryTypeUnmanaged = 0,  // host memory that is not registered with OpenReg
  orMemoryTypeDevice = 1,
  orMemoryTypeHost = 2  // pinned: from orMallocHost or orHostRegister
} orMemoryType;

typedef struct orPointerAttributes {
  orMemoryType type;
  int device;     // -1 for unmanaged memory
  void* pointer;  // the address that was passed in
  void* base;     // start of the allocation that contains it; null for unmanaged memory
  size_t size;    // bytes of that allocation
  int imported;   // 1: from orIpcImport
} orPointerAttributes;

// Allocates and frees memory of the current device. A size of zero returns a null pointer and
// orSuccess. New memory is uninitialized, as on real hardware: it holds zeros or data from before
// it was last freed. orFree accepts any pointer from orMalloc, whatever device is current. It does
// not wait: the caller must ensure that no queued kernel still uses the memory.
//   orErrorOutOfMemory           no free range of the device is large enough
//   orErrorInvalidDevicePointer  orFree of an interior, freed, imported or foreign pointer
OPENREG_API orError_t orMalloc(void** pointer, size_t size);
OPENREG_API orError_t orFree(void* pointer);

// Allocate, free, register and unregister pinned host memory. Asynchronous copies from and to it
// return before they are done. The host may read and write it; kernels see it at the same address.
// orHostRegister pins memory that the caller owns; if any byte of it is already pinned, it returns
// orErrorAlreadyRegistered. orFreeHost and orHostUnregister take the start address of the matching
// call. No pages are locked.
OPENREG_API orError_t orMallocHost(void** pointer, size_t size);
OPENREG_API orError_t orFreeHost(void* pointer);
OPENREG_API orError_t orHostRegister(void* pointer, size_t size);
OPENREG_API orError_t orHostUnregister(void* pointer);

// Describes the memory at a pointer. Succeeds for every readable pointer, including interior
// pointers. A device address outside of every live allocation returns orErrorInvalidDevicePointer.
OPENREG_API orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* pointer);

// Copies and fills. Each range must lie inside one live allocation or in unmanaged host memory, and
// the kind must agree with the pointers. Ranges may overlap. A size of zero succeeds for any
// pointers. Fills take device memory or pinned host memory.
//
// orMemcpy and orMemset run after all work on the default stream of the current device and return
// when they are done. They return and clear a pending error of that stream. The Async functions are
// queued on `stream`. If they read or write unmanaged (pageable) host memory, they return only when
// that memory may be reused.
//   orErrorInvalidCopy           a range exceeds its allocation, or the kind is wrong
//   orErrorInvalidDevicePointer  no allocation contains a device address
OPENREG_API orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind);
OPENREG_API orError_t orMemset(void* pointer, int value, size_t size);

typedef struct orStream* orStream_t;
typedef struct orEvent* orEvent_t;

OPENREG_API orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind,
                                    orStream_t stream);
OPENREG_API orError_t orMemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                                   size_t size);
OPENREG_API orError_t orMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                        size_t size, orStream_t stream);
OPENREG_API orError_t orMemsetAsync(void* pointer, int value, size_t size, orStream_t stream);

// Returns the pages of free memory of the current device to the operating system, except blocks
// that another process has open. `released` (may be null) receives the number of bytes; a driver
// that cannot trim sets it to 0.
OPENREG_API orError_t orMemTrim(size_t* released);

// ---------------------------------------------------------------------------------------- streams
// Tier 1: orGetDefaultStream, orStreamGetDevice, orStreamQuery, orStreamSynchronize. Tier 2: the
// other functions. A tier 1 driver has one stream per device, its default stream.

// Creates a stream of the current device. Its thread starts with the first command that needs one.
// `flags` must be 0; a priority out of range returns orErrorInvalidValue. At most 4096 streams can
// exist at a time.
OPENREG_API orError_t orStreamCreate(orStream_t* stream);
OPENREG_API orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned flags, int priority);

// Destroys the stream once its queued commands have run; the call does not wait. If one of its
// kernels fails, the next synchronization of its device returns the error.
OPENREG_API orError_t orStreamDestroy(orStream_t stream);

// Gets the default stream of a device, which always exists and cannot be destroyed.
OPENREG_API orError_t orGetDefaultStream(orStream_t* stream, int device);

OPENREG_API orError_t orStreamGetPriority(orStream_t stream, int* priority);
OPENREG_API orError_t orStreamGetDevice(orStream_t stream, int* device);

// Returns orSuccess if all commands are done, otherwise orErrorNotReady. Returns orErrorShutdown if
// the commands will never run because the process is exiting. Does not return errors of kernels.
OPENREG_API orError_t orStreamQuery(orStream_t stream);
OPENREG_API orError_t orStreamSynchronize(orStream_t stream);

// Makes commands that are queued on `stream` from now on wait for the work that `event` has
// captured. The stream and the event may belong to different devices, and either may be destroyed
// afterwards. The call reads what the event captures now: recording the event again does not change
// this wait. There is nothing to wait for if the event was never recorded or was recorded on
// `stream` itself.
OPENREG_API orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned flags);

// ------------------------------------------------------------------------------------------ events
// Tier 2; events between processes: tier 3.

enum {
  orEventDisableTiming = 0x0,
  orEventEnableTiming = 0x1,
  orEventInterprocess = 0x2,  // with orEventEnableTiming: orErrorInvalidValue
};
// Creates an event of the current device. At most 1048576 events can exist at a time.
OPENREG_API orError_t orEventCreate(orEvent_t* event);  // creates an event without timing
OPENREG_API orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags);
OPENREG_API orError_t orEventDestroy(orEvent_t event);
OPENREG_API orError_t orEventGetDevice(orEvent_t event, int* device);

// Captures the work that is queued on `stream` now and replaces an earlier record. An event with
// timing also records the time at which that work is done. The stream must belong to the event's
// device; otherwise the call returns orErrorInvalidDevice. An event that was never recorded is
// complete.
OPENREG_API orError_t orEventRecord(orEvent_t event, orStream_t stream);
// Returns orSuccess or orErrorNotReady, or orErrorShutdown if the work was dropped because the
// process is exiting.
OPENREG_API orError_t orEventQuery(orEvent_t event);
OPENREG_API orError_t orEventSynchronize(orEvent_t event);  // returns a pending error of its stream

// Gets the milliseconds between two timed events that are complete.
//   orErrorNotReady       one of the events is not complete
//   orErrorNotSupported   one of the events has no timing
//   orErrorInvalidValue   one of them was never recorded, or they belong to different devices
OPENREG_API orError_t orEventElapsedTime(float* milliseconds, orEvent_t start, orEvent_t end);

// Share events between processes of one user. The handle of an event with orEventInterprocess may
// be sent by any means and opened any number of times. Opening it creates an event of the device
// with the same index in the opening process, to be destroyed with orEventDestroy. That process may
// query the event and wait for it, on the host and on its streams, but cannot record it
// (orErrorNotSupported). Each wait is for the work that the event had captured when the wait began.
typedef struct orIpcEventHandle {
  unsigned char reserved[64];
} orIpcEventHandle;
OPENREG_API orError_t orIpcGetEventHandle(orIpcEventHandle* handle, orEvent_t event);
OPENREG_API orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle* handle);

// ------------------------------------------------------------------- memory shared by processes
// Tier 3.

// Shares device memory between processes of one user, ordered with streams. orIpcExport makes a
// handle for `size` bytes at `pointer` and for the work that `stream` has queued now. The bytes may
// belong to an allocation of this process or to an imported one. The handle may be sent by any
// means and is valid for one import, by any process. The bytes count as exported until that import,
// and for their owner also while another process has them imported; this ends if that process is
// killed. The exporter must keep the bytes as long as they are exported (orIpcIsExported). If the
// owner frees the allocation, its bytes stay until the last importer has released them.
//
// orIpcImport makes the bytes an allocation of the device with the same index in the importing
// process. Commands that are queued on `stream` from now on wait for the exporter's work.
// orIpcRelease returns the bytes once the commands that are then queued on `stream` are done. Only
// the pages that hold the bytes are mapped. A process that imports its own memory gets its own
// pointer and releases nothing. Importing the same bytes again returns the same pointer; each
// import needs its own orIpcRelease.
//   orErrorInvalidValue   the bytes are not a handle; it was imported before; its memory was freed
//   orErrorProcessEnded   the exporter ended before the import
//   orErrorInvalidDevicePointer  the bytes are not part of one live allocation; orIpcRelease of a
//                         pointer that is not imported
//   orErrorInvalidDevice  the stream belongs to another device, or this process has no such device
typedef struct orIpcMemoryHandle {
  unsigned char reserved[64];
} orIpcMemoryHandle;
OPENREG_API orError_t orIpcExport(orIpcMemoryHandle* handle, void* pointer, size_t size,
                                  orStream_t stream);
OPENREG_API orError_t orIpcImport(void** pointer, const orIpcMemoryHandle* handle,
                                  orStream_t stream);
OPENREG_API orError_t orIpcRelease(void* pointer, orStream_t stream);
OPENREG_API orError_t orIpcIsExported(int* exported, const void* pointer, size_t size);

// ----------------------------------------------------------------------------------------- kernels
// Tier 1; orLaunchHostFunc: tier 2.

// A kernel of this device. The driver defines what a kernel consists of and how a program obtains
// one. (For the emulation: openreg_emulation.h.)
typedef const struct orKernel* orKernel_t;

// The maximum number of argument bytes that a launch copies.
#define OPENREG_MAX_ARGUMENT_BYTES 448

// Queues a kernel on `stream`. `arguments` points to `size` bytes that can be moved with memcpy.
// They are copied before the call returns, to an address aligned to 16. The call blocks only while
// the queue of the stream is full. With launch blocking it waits for the kernel and returns its
// error.
OPENREG_API orError_t orLaunchKernel(orStream_t stream, orKernel_t kernel, const void* arguments,
                                     size_t size);

// Queues a host function. It never runs inline or in parallel with other commands of the stream.
typedef void (*orHostFn_t)(void* data);
OPENREG_API orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t function, void* data);

// Returns 1 while the calling thread runs a host function, or a kernel if kernels run on the host.
OPENREG_API int orInKernel(void);

// ------------------------------------------------------------------------------------------ graphs
// Tier 3. A driver without graphs still implements orStreamGetCaptureInfo (no capture) and
// orThreadExchangeStreamCaptureMode (success).

// A graph is the work of one capture: kernels, copies, fills, host functions and records of timed
// events, with their arguments. Nothing runs during the capture. A replay is one command of the
// stream on which it is launched. It runs the graph's commands one after the other in the order in
// which they were captured; that order satisfies the dependencies of all branches. Errors of
// kernels stay with that stream. Memory that the commands use must stay allocated as long as the
// graph is replayed.
typedef struct orGraph* orGraph_t;

// Some calls are unsafe during a capture although they touch none of its streams, because they may
// wait for any stream or allocate memory that a replay would not have: orMalloc, orMemcpy,
// orMemset, orMemcpyPeer. The mode says where these calls are refused and invalidate the capture:
//   orStreamCaptureModeGlobal       in every thread while this capture is active
//   orStreamCaptureModeThreadLocal  in the thread that began the capture
//   orStreamCaptureModeRelaxed      nowhere
typedef enum orStreamCaptureMode {
  orStreamCaptureModeGlobal = 0,
  orStreamCaptureModeThreadLocal = 1,
  orStreamCaptureModeRelaxed = 2
} orStreamCaptureMode;

// Sets the mode of the calling thread, which narrows the rules above, and returns the previous mode
// (initially global).
//   global        the rules above apply
//   thread_local  captures that other threads began do not restrict this thread
//   relaxed       no capture restricts this thread: unsafe calls are allowed, and so is
//                 orDeviceSynchronize, which waits for the work that does run. For allocators that
//                 handle captures themselves.
OPENREG_API orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode);

// Captures the commands that any thread queues on `stream` from now on. Commands that were queued
// before still run.
//
// A stream of any device joins the capture (a fork) when it waits for an event that was recorded on
// a captured stream. Its work is joined again when a captured stream waits for an event recorded on
// it.
//
// Events that a capture records belong to the capture. A stream that waits for one joins the
// capture. Querying, synchronizing or timing one is refused until it is recorded outside of the
// capture. Waiting for one after the capture ended returns orErrorCaptureIsolation. Timed events
// are recorded by each replay.
//
// These calls are refused on captured streams and invalidate the capture: synchronizing or querying
// the stream or its device, orDeviceReset, orStreamDestroy, waiting for an event from outside of
// the capture, copies from and to pageable memory, and, if a default stream is captured, the
// functions that run on it and wait.
OPENREG_API orError_t orStreamBeginCapture(orStream_t stream, orStreamCaptureMode mode);

// Ends the capture that was begun on `stream`. Must be called by the thread that began it, unless
// the mode is relaxed. If the capture is invalid, `graph` is null, the error reports the cause, the
// streams return to their earlier state, and the captured work is released.
//   orErrorInvalidValue          no capture was begun on `stream`
//   orErrorCaptureUnjoined       work of a forked stream was not joined
OPENREG_API orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph);

typedef enum orStreamCaptureStatus {
  orStreamCaptureStatusNone = 0,
  orStreamCaptureStatusActive = 1,
  orStreamCaptureStatusInvalidated = 2
} orStreamCaptureStatus;

// Gets the state of the stream's capture. `id` (may be null) receives a number that is unique to
// the capture within the process, or 0 if there is no capture. Never invalidates a capture.
OPENREG_API orError_t orStreamGetCaptureInfo(orStream_t stream, orStreamCaptureStatus* status,
                                             uint64_t* id);

// Queues a replay on `stream`, which must belong to the device on which the graph was captured. Any
// number of replays may be queued. Replays of one graph never overlap: if the stream differs from
// that of the previous replay, the new replay waits for the previous one. Graphs do not nest: a
// captured stream returns orErrorCaptureUnsupported. With launch blocking, waits and returns the
// first error of the graph's kernels.
OPENREG_API orError_t orGraphLaunch(orGraph_t graph, orStream_t stream);

// Destroys the graph. Does not wait: the graph's resources are released when its queued replays
// have run.
OPENREG_API orError_t orGraphDestroy(orGraph_t graph);

OPENREG_API orError_t orGraphGetNodeCount(orGraph_t graph, size_t* count);

// Writes the graph's commands and their order to a Graphviz (DOT) file.
OPENREG_API orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path);

// ---------------------------------------------------------------------------------------- activity
// Tier 3.

// Records of the device's activity for a profiler. While tracing is on, each call that submits work
// to a device, waits for it or allocates writes a record. Each piece of work also writes one when
// it is done: a kernel, a copy, a fill or a host function, whether it was queued or ran within its
// call, and for each node of a graph at each replay. A call and its work have the same correlation.
typedef enum orActivityKind {
  orActivityRuntime = 0,  // a call of this interface on a host thread
  orActivityKernel = 1,
  orActivityMemcpy = 2,
  orActivityMemset = 3,
  orActivityHostFunction = 4
} orActivityKind;

typedef struct orActivity {
  orActivityKind kind;
  uint32_t correlation;  // shared by a call and its work; starts at 1
  const char* name;      // name of the function or kernel (may be null); never freed
  uint64_t start_ns;     // CLOCK_MONOTONIC, as are all times here
  uint64_t end_ns;
  uint64_t queued_ns;        // when the call queued the work; 0 for a call
  uint64_t external_id;      // the last id of kind orActivityIdExternal that the calling
                             // thread pushed; 0: none
  uint64_t user_id;          // the last id of kind orActivityIdUser; 0: none
  uint64_t bytes;            // size of a copy, a fill or an allocation
  uint64_t object;           // the event, graph or pointer of a call, if any
  int32_t thread;            // gettid() of the caller
  int32_t device;            // device of the stream; -1 for a call without a stream
  int32_t stream;            // index in this process; the first one of each device is its default
                             // stream; -1 for a call without a stream
  int32_t graph;             // number of the graph, from 1; 0: not part of a graph
  int32_t node;              // index of the node in the graph, from 0
  orMemcpyKind copy;         // kind of a copy
  orMemoryType source;       // memory that a copy reads
  orMemoryType destination;  // memory that a copy or a fill writes
} orActivity;

// Records are written to buffers that the profiler owns; a thread writes to one buffer at a time.
// `requested` provides a buffer of `size` bytes, aligned to 8. If it provides null, the record is
// dropped and counted. `completed` returns the buffer with `used` bytes of records. Both may be
// called by any thread that writes a record, including worker threads of the device, and by
// orActivityFlushAll. They must be fast, must not call this interface, and must not take a lock
// that a caller of orActivityFlushAll holds. Null pointers unregister them. A thread returns its
// buffer when it ends, before a join of that thread returns. At most one profiler can be
// registered.
//   orErrorNotPermitted  tracing is on, or other functions are registered
typedef void (*orActivityBufferRequested_t)(void** buffer, size_t* size);
typedef void (*orActivityBufferCompleted_t)(void* buffer, size_t used);
OPENREG_API orError_t orActivityRegisterCallbacks(orActivityBufferRequested_t requested,
                                                  orActivityBufferCompleted_t completed);

// Turn tracing on and off. Work that is submitted while it is on is recorded when it runs, even if
// tracing has ended by then. A profiler that needs all records disables tracing and then flushes.
// Enabling or disabling twice does nothing.
OPENREG_API orError_t orActivityEnableTracing(void);
OPENREG_API orError_t orActivityDisableTracing(void);
OPENREG_API int orActivityIsEnabled(void);

// Passes the buffers of all threads to `completed`, full or not. While tracing is on, records
// written during the call may or may not be included. If tracing is off, the call first waits until
// all work that will be recorded has run and all calls that submitted it, on any thread, have
// returned. The profiler then has all records and all its buffers. The call does not wait for calls
// that themselves wait, such as orStreamSynchronize: these are recorded if they return while
// tracing is on. Inside a kernel or a host function it does not wait. Errors of kernels stay with
// their streams.
OPENREG_API orError_t orActivityFlushAll(void);

// Gets the number of records that this process has written to buffers, and the number that it
// dropped for lack of a buffer.
OPENREG_API orError_t orActivityGetCounts(uint64_t* recorded, uint64_t* dropped);

// Ids chosen by the program. Records of a thread's calls, and of their work, carry the id on top of
// the thread's stack; there is one stack per thread and kind. A pop without a push returns
// orErrorInvalidValue. `id` may be null.
typedef enum orActivityIdKind { orActivityIdExternal = 0, orActivityIdUser = 1 } orActivityIdKind;
OPENREG_API orError_t orActivityPushExternalCorrelationId(orActivityIdKind kind, uint64_t id);
OPENREG_API orError_t orActivityPopExternalCorrelationId(orActivityIdKind kind, uint64_t* id);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_OPENREG_H_
