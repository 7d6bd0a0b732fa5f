// SPDX-License-Identifier: BSD-3-Clause
//
// openreg.h - the driver interface of OpenReg.
//
// This header is the boundary between the portable packages and a device. A vendor implements it
// for real hardware. The portable packages (allocator, c10, amp, autoload, the device-neutral half
// of compile, python) then run on that hardware unchanged. They also include host_wait.h, which
// declares hooks that run before and after a host thread waits. Functions that only one driver has
// are declared in a header of that driver.
//
// Tiers. Each section states the tier of its functions. Tier 1 is required for the first tensor.
// Tier 2 adds concurrency. Tier 3 is optional: a driver may return orErrorNotSupported from its
// functions. docs/device.md lists the callers of each function.
//
// Model. A process has orGetDeviceCount() devices. Each device has its own memory and any number of
// streams. A stream is a queue that runs its commands in order. Streams, including each device's
// default stream, are independent of each other unless an event orders them.
//
// Ownership. Handles (orStream_t, orEvent_t) and memory belong to the caller until the matching
// destroy or free call, or orDeviceReset. Handles carry a generation, so a stale or foreign handle
// returns orErrorInvalidHandle. A null orStream_t is the default stream of the calling thread's
// current device.
//
// Threads. Any thread may call any function unless the function's comment states otherwise. Inside
// a kernel or a host callback, every function that enqueues, waits, allocates or frees returns
// orErrorNotPermitted. The current device and the last error are per thread.
//
// Errors. Every function that can fail returns an orError_t. orGetLastErrorDetail() returns the
// calling thread's last error as text: the request, the situation, and the remedy. When a kernel
// fails, its stream stores the error, and later kernels still run. A stream stores only the first
// error. The next call that synchronizes the stream or its device returns the error once and clears
// it.
//
// Graphs. While a stream is being captured, its commands are recorded in a graph and do not run.
// Some calls cannot be recorded, or have a result that would depend on work that does not run. Such
// a call returns one of the orErrorCapture errors and invalidates the capture. orStreamEndCapture
// then reports the cause.
//
// Processes. If a process forks after the first use of a device, calls that free, trim, destroy,
// release or shut down do nothing in the child and return orSuccess. Every other call that needs a
// device returns orErrorForked, including orGetDevice and orSetDevice. orGetDeviceCount,
// orGetDeviceProperties, the version, the error functions and the launch-blocking switch still
// work. If another thread is using the device for the first time, a fork waits until this first use
// is complete. The child does not keep the device's files open. Use the start methods "spawn" or
// "forkserver".
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

// The version of this interface: major * 10000 + minor * 100 + patch. A library is compatible with
// callers that were built for the same major version and for the same or a smaller minor version.
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
  orErrorNotReady = 2,       // the result of a query; not an error and not stored as the last error
  orErrorInvalidValue = 3,   // an argument is out of range
  orErrorInvalidDevice = 4,  // the device index is not in 0 .. count-1
  orErrorInvalidHandle = 5,  // a stream or event that was destroyed or never existed
  orErrorInvalidDevicePointer = 6,  // a pointer outside all live allocations of the required kind
  orErrorInvalidCopy = 7,     // a copy or fill exceeds its allocation, or has the wrong direction
  orErrorOutOfMemory = 8,     // too little free device memory, or host memory for orMallocHost
  orErrorSystem = 9,          // the operating system refused a request; the detail names the limit
  orErrorNotPermitted = 10,   // the call was made in a kernel or a host callback
  orErrorForked = 11,         // the device was used in a forked child
  orErrorLaunchFailure = 12,  // a kernel failed
  orErrorAlreadyRegistered = 13,  // orHostRegister of memory that is already pinned
  orErrorNotRegistered = 14,      // orHostUnregister of memory that is not pinned
  orErrorNotSupported = 15,       // e.g. elapsed time of an event without timing
  orErrorShutdown = 16,           // the process is exiting
  orErrorProcessEnded = 17,       // another process ended before it completed the awaited work
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

// Return the calling thread's last error. orGetLastError resets it to orSuccess; orPeekAtLastError
// does not.
OPENREG_API orError_t orGetLastError(void);
OPENREG_API orError_t orPeekAtLastError(void);

// Returns one sentence about this thread's last failed call. The text is valid until this thread's
// next call that fails.
OPENREG_API const char* orGetLastErrorDetail(void);

OPENREG_API orError_t orGetVersion(int* version);

// ----------------------------------------------------------------------------------------- devices
// Tier 1; orDeviceReset, the priorities and launch blocking: tier 2.

typedef struct orDeviceProperties {
  char name[64];
  size_t total_memory;                  // in bytes
  size_t allocation_granularity;        // in bytes; orMalloc rounds sizes up to it
  int major, minor;                     // compute capability
  int multi_processor_count;            // number of CPU cores that kernels may use
  int max_threads_per_multi_processor;  // number of kernel threads that run on a core in parallel
  int warp_size;                        // number of threads that run in lockstep, or 1
  size_t l2_cache_size;  // size in bytes of the last cache before memory; 0 if unknown
  uint8_t uuid[16];      // identifies the device in all processes until the next reboot
} orDeviceProperties;

// Initializes the driver for this process: reads the environment and reserves the devices'
// resources. Every other function that needs a device initializes the driver on demand. A program
// can call orInit to detect problems early. Further calls do nothing.
//   orErrorSystem  the operating system refused a request; the detail names the limit
//   orErrorInvalidValue  an environment variable is invalid; the detail names it
//   orErrorForked  the device was used before this process was forked
OPENREG_API orError_t orInit(void);

// Ends the device's threads. Waits for running kernels and drops queued ones. It is called at exit;
// further calls do nothing. Afterwards, functions that allocate, launch or wait return
// orErrorShutdown, and so does a query of work that was dropped. Other queries still work, and
// memory can still be freed.
OPENREG_API orError_t orShutdown(void);

// These three functions do not initialize the device: they do not start threads or map memory.
OPENREG_API orError_t orGetDeviceCount(int* count);
OPENREG_API orError_t orGetDevice(int* device);
OPENREG_API orError_t orSetDevice(int device);

OPENREG_API orError_t orGetDeviceProperties(orDeviceProperties* properties, int device);

// Gets the number of bytes that orMalloc can still allocate on the current device, and the total
// memory of the device.
OPENREG_API orError_t orMemGetInfo(size_t* free_bytes, size_t* total_bytes);

// Waits for all streams of the current device. Returns and clears the first error of their kernels.
OPENREG_API orError_t orDeviceSynchronize(void);

// Waits for all streams of the current device, then destroys the device's streams and events and
// frees its memory. Pending errors are dropped. All earlier handles and pointers become invalid.
OPENREG_API orError_t orDeviceReset(void);

// Gets the range of priorities for orStreamCreateWithPriority. A lower number is a higher priority.
// When several streams wait for the executor of parallel kernels, the executor serves the one with
// the highest priority first.
OPENREG_API orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest);

// Set and get launch blocking. If it is 1, each launch waits for its kernel and returns the
// kernel's error. The setting applies to the whole process.
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
  void* base;     // start of the allocation that contains `pointer`; null if unmanaged
  size_t size;    // size of the allocation in bytes
  int imported;   // 1 if the memory is from orIpcImport, otherwise 0
} orPointerAttributes;

// Allocate and free memory on the current device. For a size of zero, orMalloc returns a null
// pointer and orSuccess. New memory is uninitialized, as on real hardware: it contains zeros, or
// data from before it was last freed. orFree accepts any pointer from orMalloc, regardless of the
// current device. It does not wait: the caller must ensure that no queued kernel still uses the
// memory.
//   orErrorOutOfMemory           no free range on the device is large enough
//   orErrorInvalidDevicePointer  orFree of an interior, freed, imported or foreign pointer
OPENREG_API orError_t orMalloc(void** pointer, size_t size);
OPENREG_API orError_t orFree(void* pointer);

// Allocate, free, register and unregister pinned host memory. Asynchronous copies to and from
// pinned memory return before they are done. The host may read and write the memory, and kernels
// use the same address. orHostRegister pins memory that the caller owns. It returns
// orErrorAlreadyRegistered if any byte is already pinned. orFreeHost and orHostUnregister expect
// the start address that the matching call returned or received. No pages are locked.
OPENREG_API orError_t orMallocHost(void** pointer, size_t size);
OPENREG_API orError_t orFreeHost(void* pointer);
OPENREG_API orError_t orHostRegister(void* pointer, size_t size);
OPENREG_API orError_t orHostUnregister(void* pointer);

// Describes the memory at a pointer. Succeeds for every readable pointer, including interior
// pointers. Returns orErrorInvalidDevicePointer for a device address that is not inside any live
// allocation.
OPENREG_API orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* pointer);

// Copies and fills. Each range must lie inside one live allocation or in unmanaged host memory, and
// the kind must match the pointers. Ranges may overlap. If the size is zero, any pointers are
// valid. A fill writes device memory or pinned host memory.
//
// orMemcpy and orMemset run after all work on the current device's default stream and return when
// they are done. They return and clear a pending error of that stream. The Async functions are
// queued on `stream`. If they read or write unmanaged (pageable) host memory, they return only when
// that memory may be reused.
//   orErrorInvalidCopy           a range exceeds its allocation, or the kind is wrong
//   orErrorInvalidDevicePointer  a device address is not inside any live allocation
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

// Returns the pages of the current device's free memory to the operating system, except the pages
// of blocks that another process still maps. `released` (may be null) receives the number of bytes.
// A driver that cannot trim sets it to 0.
OPENREG_API orError_t orMemTrim(size_t* released);

// ---------------------------------------------------------------------------------------- streams
// Tier 1: orGetDefaultStream, orStreamGetDevice, orStreamQuery, orStreamSynchronize. Tier 2: the
// other functions. A tier 1 driver has one stream per device, its default stream.

// Create a stream on the current device. The stream's thread starts with the first command that
// needs it. `flags` must be 0. A priority out of range returns orErrorInvalidValue. At most 4096
// streams can exist at the same time.
OPENREG_API orError_t orStreamCreate(orStream_t* stream);
OPENREG_API orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned flags, int priority);

// Destroys the stream after its queued commands have run. The call does not wait. If one of these
// kernels fails, the next synchronization of the device returns the error.
OPENREG_API orError_t orStreamDestroy(orStream_t stream);

// Gets a device's default stream, which always exists and cannot be destroyed.
OPENREG_API orError_t orGetDefaultStream(orStream_t* stream, int device);

OPENREG_API orError_t orStreamGetPriority(orStream_t stream, int* priority);
OPENREG_API orError_t orStreamGetDevice(orStream_t stream, int* device);

// Returns orSuccess if all commands are done, and orErrorNotReady otherwise. Returns
// orErrorShutdown if the commands will never run because the process is exiting. Does not return
// kernel errors.
OPENREG_API orError_t orStreamQuery(orStream_t stream);
OPENREG_API orError_t orStreamSynchronize(orStream_t stream);

// Makes commands that are queued on `stream` later wait for the work that `event` has captured. The
// stream and the event may belong to different devices, and either may be destroyed afterwards. The
// call reads the captured work immediately, so recording the event again does not change this wait.
// There is nothing to wait for if the event was never recorded, or was recorded on `stream` itself.
OPENREG_API orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned flags);

// ------------------------------------------------------------------------------------------ events
// Tier 2; events between processes: tier 3.

enum {
  orEventDisableTiming = 0x0,
  orEventEnableTiming = 0x1,
  orEventInterprocess = 0x2,  // together with orEventEnableTiming: orErrorInvalidValue
};
// Create an event on the current device. At most 1048576 events can exist at the same time.
OPENREG_API orError_t orEventCreate(orEvent_t* event);  // creates an event without timing
OPENREG_API orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags);
OPENREG_API orError_t orEventDestroy(orEvent_t event);
OPENREG_API orError_t orEventGetDevice(orEvent_t event, int* device);

// Captures the work that is currently queued on `stream`, and replaces the previous record. An
// event with timing also records the time at which that work is done. The stream must belong to the
// event's device; otherwise the call returns orErrorInvalidDevice. An event that was never recorded
// is complete.
OPENREG_API orError_t orEventRecord(orEvent_t event, orStream_t stream);
// Returns orSuccess if the captured work is done, and orErrorNotReady otherwise. Returns
// orErrorShutdown if the work was dropped because the process is exiting.
OPENREG_API orError_t orEventQuery(orEvent_t event);
OPENREG_API orError_t orEventSynchronize(orEvent_t event);  // returns a pending error of its stream

// Gets the time in milliseconds between two timed events that are complete.
//   orErrorNotReady       one of the events is not complete
//   orErrorNotSupported   one of the events has no timing
//   orErrorInvalidValue   one of the events was never recorded, or they belong to different devices
OPENREG_API orError_t orEventElapsedTime(float* milliseconds, orEvent_t start, orEvent_t end);

// Share events between processes of the same user. The handle of an event created with
// orEventInterprocess may be sent by any means and opened any number of times. Opening the handle
// creates an event in the opening process, on the device with the same index. That event must be
// destroyed with orEventDestroy. The opening process can query the event and wait for it, on the
// host and on streams, but cannot record it (orErrorNotSupported). Each wait is for the work that
// the event had captured when the wait began.
typedef struct orIpcEventHandle {
  unsigned char reserved[64];
} orIpcEventHandle;
OPENREG_API orError_t orIpcGetEventHandle(orIpcEventHandle* handle, orEvent_t event);
OPENREG_API orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle* handle);

// ------------------------------------------------------------------- memory shared by processes
// Tier 3.

// Share device memory between processes of the same user, ordered with streams. orIpcExport creates
// a handle for `size` bytes at `pointer` and for the work that is currently queued on `stream`. The
// bytes may belong to an allocation of this process or to an imported one. The handle may be sent
// by any means and is valid for one import, by any process.
//
// The bytes count as exported until that import. In the process that owns them, they also count as
// exported while another process has them imported, unless that process is killed. The exporter
// must keep the bytes allocated while they are exported (orIpcIsExported). If the owner frees the
// allocation, its bytes are not reused until the last importer has released them.
//
// orIpcImport makes the bytes an allocation in the importing process, on the device with the same
// index. Commands that are queued on `stream` later wait for the exporter's work. orIpcRelease
// releases the bytes after the commands that are queued on `stream` at the time of the call. Only
// the pages that contain the bytes are mapped. A process that imports its own memory receives its
// own pointer and releases nothing. Importing the same bytes again returns the same pointer; each
// import needs its own orIpcRelease.
//   orErrorInvalidValue   the handle is invalid or was imported before, or its memory was freed
//   orErrorProcessEnded   the exporter ended before the import
//   orErrorInvalidDevicePointer  the bytes are not in one live allocation, or are not imported
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

// A kernel for this device. The driver defines the content of a kernel and the way in which a
// program obtains one.
typedef const struct orKernel* orKernel_t;

// The largest `size`, in bytes, that orLaunchKernel accepts.
#define OPENREG_MAX_ARGUMENT_BYTES 448

// Queues a kernel on `stream`. `arguments` points to `size` bytes that can be moved with memcpy.
// They are copied before the call returns, to an address aligned to 16 bytes. The call blocks only
// while the stream's queue is full. With launch blocking, it waits for the kernel and returns the
// kernel's error.
OPENREG_API orError_t orLaunchKernel(orStream_t stream, orKernel_t kernel, const void* arguments,
                                     size_t size);

// Queues a host function. It never runs inline or in parallel with other commands of the stream.
typedef void (*orHostFn_t)(void* data);
OPENREG_API orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t function, void* data);

// Returns 1 on a thread that is running a host function, or a kernel if kernels run on the host.
OPENREG_API int orInKernel(void);

// ------------------------------------------------------------------------------------------ graphs
// Tier 3. A driver without graphs must still implement orStreamGetCaptureInfo (reports no capture)
// and orThreadExchangeStreamCaptureMode (returns orSuccess).

// A graph is the work of one capture: kernels, copies, fills, host functions and records of timed
// events, with their arguments. None of this work runs during the capture. A replay is a single
// command of the stream on which the graph is launched. It runs the graph's commands one after the
// other, in the order in which they were captured. This order satisfies the dependencies of all
// branches. The stream of the replay stores kernel errors. Memory that the commands use must stay
// allocated while the graph may be replayed.
typedef struct orGraph* orGraph_t;

// Some calls are unsafe during a capture even if they use none of its streams, because they may
// wait for any stream, or allocate memory that a replay would not have. These calls are orMalloc,
// orMemcpy, orMemset and orMemcpyPeer. The mode of a capture specifies the threads in which these
// calls are refused. A refused call invalidates the capture.
//   orStreamCaptureModeGlobal       in every thread while this capture is active
//   orStreamCaptureModeThreadLocal  in the thread that began the capture
//   orStreamCaptureModeRelaxed      nowhere
typedef enum orStreamCaptureMode {
  orStreamCaptureModeGlobal = 0,
  orStreamCaptureModeThreadLocal = 1,
  orStreamCaptureModeRelaxed = 2
} orStreamCaptureMode;

// Sets the calling thread's mode, which can relax the rules above for this thread. Returns the
// previous mode, which is initially global.
//   global        the rules above apply
//   thread_local  captures that other threads began do not restrict this thread
//   relaxed       no capture restricts this thread: unsafe calls are allowed, and so is
//                 orDeviceSynchronize, which waits for the work that does run. For allocators that
//                 handle captures themselves.
OPENREG_API orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode);

// Captures the commands that any thread queues on `stream` from now on. Commands that were queued
// earlier still run.
//
// A stream of any device joins the capture when it waits for an event that was recorded on a
// captured stream. This is a fork. The fork is joined when a captured stream waits for an event
// that was recorded on the forked stream.
//
// Events that are recorded during a capture belong to the capture. A stream that waits for such an
// event joins the capture. Querying, synchronizing with or timing the event is refused until it is
// recorded outside the capture. Waiting for it after the capture has ended returns
// orErrorCaptureIsolation. Each replay records the timed events again.
//
// These calls are refused on captured streams and invalidate the capture: synchronizing or querying
// the stream or its device, orDeviceReset, orStreamDestroy, waiting for an event from outside the
// capture, and copies to and from pageable memory. If a default stream is being captured, functions
// that run on it and wait are refused, too.
OPENREG_API orError_t orStreamBeginCapture(orStream_t stream, orStreamCaptureMode mode);

// Ends the capture that was begun on `stream`. Must be called by the thread that began it, unless
// the mode is relaxed. If the capture is invalid, `graph` is set to null, and the error reports the
// cause. The streams then return to their earlier state, and the captured work is released.
//   orErrorInvalidValue          no capture was begun on `stream`
//   orErrorCaptureUnjoined       a forked stream was not joined
OPENREG_API orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph);

typedef enum orStreamCaptureStatus {
  orStreamCaptureStatusNone = 0,
  orStreamCaptureStatusActive = 1,
  orStreamCaptureStatusInvalidated = 2
} orStreamCaptureStatus;

// Gets the state of the stream's capture. `id` (may be null) receives a number that identifies the
// capture within the process, or 0 if there is no capture. Never invalidates a capture.
OPENREG_API orError_t orStreamGetCaptureInfo(orStream_t stream, orStreamCaptureStatus* status,
                                             uint64_t* id);

// Queues a replay on `stream`, which must belong to the device on which the graph was captured. Any
// number of replays may be queued. Replays of one graph never overlap: a replay on a different
// stream waits for the previous replay. Graphs cannot be nested: if the stream is being captured,
// the call returns orErrorCaptureUnsupported. With launch blocking, the call waits and returns the
// first error of the graph's kernels.
OPENREG_API orError_t orGraphLaunch(orGraph_t graph, orStream_t stream);

// Destroys the graph. Does not wait: the graph's resources are released after its queued replays
// have run.
OPENREG_API orError_t orGraphDestroy(orGraph_t graph);

OPENREG_API orError_t orGraphGetNodeCount(orGraph_t graph, size_t* count);

// Writes the graph's commands and their order to a Graphviz (DOT) file.
OPENREG_API orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path);

// ---------------------------------------------------------------------------------------- activity
// Tier 3.

// Records of the device's activity, for a profiler. While tracing is on, each call that submits
// work to a device, waits for it or allocates writes a record. Each piece of work (a kernel, a
// copy, a fill or a host function) also writes a record when it is done, even if it ran within its
// call. A replay writes one record per node of its graph. The records of a call and of its work
// have the same correlation number.
typedef enum orActivityKind {
  orActivityRuntime = 0,  // a call to a function in this header, on a host thread
  orActivityKernel = 1,
  orActivityMemcpy = 2,
  orActivityMemset = 3,
  orActivityHostFunction = 4
} orActivityKind;

typedef struct orActivity {
  orActivityKind kind;
  uint32_t correlation;  // shared by a call and its work; counted from 1
  const char* name;      // name of the function or kernel; may be null; never freed
  uint64_t start_ns;     // CLOCK_MONOTONIC, like all times in this struct
  uint64_t end_ns;
  uint64_t queued_ns;        // time at which the call queued the work; 0 for a call
  uint64_t external_id;      // the last id of kind orActivityIdExternal that the calling
                             // thread pushed; 0 if none
  uint64_t user_id;          // the last id of kind orActivityIdUser; 0 if none
  uint64_t bytes;            // size of a copy, a fill or an allocation, in bytes
  uint64_t object;           // the event, graph or pointer of the call, if any
  int32_t thread;            // gettid() of the caller
  int32_t device;            // device of the stream; -1 for a call without a stream
  int32_t stream;            // index in this process; the first one of each device is its default
                             // stream; -1 for a call without a stream
  int32_t graph;             // number of the graph, from 1; 0 if not part of a graph
  int32_t node;              // index of the node in the graph, from 0
  orMemcpyKind copy;         // kind of a copy
  orMemoryType source;       // memory that a copy reads
  orMemoryType destination;  // memory that a copy or a fill writes
} orActivity;

// Records are written to buffers that the profiler owns. Each thread writes to one buffer at a
// time. `requested` provides a buffer of `size` bytes, aligned to 8 bytes. If it provides null, the
// record is dropped and counted. `completed` returns the buffer with `used` bytes of records.
//
// Both functions may be called by orActivityFlushAll and by any thread that writes a record,
// including the device's worker threads. They must be fast, must not call this interface, and must
// not acquire a lock that a caller of orActivityFlushAll holds. When a thread ends, it returns its
// buffer before a join of that thread returns. At most one profiler can be registered. Two null
// pointers unregister it.
//   orErrorNotPermitted  tracing is on, or a different pair of functions is registered
typedef void (*orActivityBufferRequested_t)(void** buffer, size_t* size);
typedef void (*orActivityBufferCompleted_t)(void* buffer, size_t used);
OPENREG_API orError_t orActivityRegisterCallbacks(orActivityBufferRequested_t requested,
                                                  orActivityBufferCompleted_t completed);

// Turn tracing on and off. Work that is submitted while tracing is on is recorded when it runs,
// even if tracing is off by then. A profiler that needs all records must disable tracing and then
// flush. Enabling or disabling tracing twice has no additional effect.
OPENREG_API orError_t orActivityEnableTracing(void);
OPENREG_API orError_t orActivityDisableTracing(void);
OPENREG_API int orActivityIsEnabled(void);

// Passes the buffers of all threads to `completed`, full or not. While tracing is on, records that
// are written during the call may or may not be included.
//
// If tracing is off, the call first waits until all work that will be recorded has run, and until
// all calls that submitted this work have returned on all threads. Afterwards, the profiler has all
// records and all its buffers. The call does not wait for calls that themselves wait, such as
// orStreamSynchronize: these are recorded only if they return while tracing is on. Inside a kernel
// or a host function, the call does not wait at all. Kernel errors remain with their streams.
OPENREG_API orError_t orActivityFlushAll(void);

// Gets the number of records that this process has written to buffers, and the number of records
// that it dropped because it had no buffer.
OPENREG_API orError_t orActivityGetCounts(uint64_t* recorded, uint64_t* dropped);

// Ids that the program chooses. Each thread has one stack of ids per kind. Records of the thread's
// calls, and of the work that they queue, contain the id on top of the stack. A pop without a
// matching push returns orErrorInvalidValue. `id` may be null.
typedef enum orActivityIdKind { orActivityIdExternal = 0, orActivityIdUser = 1 } orActivityIdKind;
OPENREG_API orError_t orActivityPushExternalCorrelationId(orActivityIdKind kind, uint64_t id);
OPENREG_API orError_t orActivityPopExternalCorrelationId(orActivityIdKind kind, uint64_t* id);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_OPENREG_H_
