// SPDX-License-Identifier: BSD-3-Clause
//
// openreg.h - the driver interface of OpenReg.
//
// This header is the seam of the project: a vendor implements it for real hardware, and the
// portable packages (allocator, c10, amp, autoload, the device-neutral half of compile, python) run
// on it unchanged. They also include host_wait.h, which has what a host thread does around its
// waits. What only the emulated device has stands in openreg_emulation.h.
//
// Tiers. Each section names the tier of its functions. Tier 1 is what the first tensor needs, tier
// 2 adds concurrency, tier 3 what a program can do without: there a driver may return
// orErrorNotSupported. docs/device.md has a table of the callers.
//
// Model. A process sees orGetDeviceCount() devices. Each has its own memory and any number of
// streams. A stream is a queue that runs its commands in order; streams are independent of each
// other, the default stream of a device too, except where an event orders them.
//
// Ownership. Handles (orStream_t, orEvent_t) and memory belong to the caller until the matching
// destroy/free call or orDeviceReset. Handles carry a generation: a stale or foreign one gives
// orErrorInvalidHandle. A null orStream_t names the default stream of the calling thread's device.
//
// Threads. Every function may be called from every thread, unless its comment says otherwise, but
// not from inside a kernel or a host callback: there each function that enqueues, waits, allocates
// or frees returns orErrorNotPermitted. The current device and the last error belong to the calling
// thread.
//
// Errors. Every function returns an orError_t, unless it cannot fail. orGetLastErrorDetail() has
// the last error of this thread as text: what was asked, what was found, what to do. A kernel that
// fails leaves its error with its stream: the first one is kept, later kernels still run, and the
// next synchronizing call on that stream or its device returns it once and clears it.
//
// Graphs. While a stream is captured its commands are kept in a graph instead of being run. Calls
// that cannot be kept, or whose effect would depend on work that does not run, return one of the
// orErrorCapture errors and make the capture invalid; orStreamEndCapture then tells what it was.
//
// Processes. In the child of a fork after the first use of a device, free, trim, destroy, release
// and exit do nothing and return orSuccess; everything else that has to do with a device returns
// orErrorForked, orGetDevice and orSetDevice included. (orGetDeviceCount, orGetDeviceProperties,
// the version, the errors and the launch-blocking switch go on.) A fork waits for a first use that
// is under way in another thread; the child has none of the device's files. Use the start methods
// "spawn" or "forkserver".
//
// Environment, read at the first call that needs the device:
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

// Version of this interface: major * 10000 + minor * 100 + patch. A library serves all callers of
// its major version with the same or a smaller minor version.
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
  orErrorNotReady = 2,              // a query: not an error, and not kept as the last one
  orErrorInvalidValue = 3,          // an argument is out of its range
  orErrorInvalidDevice = 4,         // device index outside of 0 .. count-1
  orErrorInvalidHandle = 5,         // stream or event that was destroyed or never existed
  orErrorInvalidDevicePointer = 6,  // not inside a live allocation of the kind that is needed
  orErrorInvalidCopy = 7,         // a copy or fill that leaves its allocation, or a wrong direction
  orErrorOutOfMemory = 8,         // the device's capacity is used up
  orErrorSystem = 9,              // the operating system refused; the detail names the limit
  orErrorNotPermitted = 10,       // call from inside a kernel or a host callback
  orErrorForked = 11,             // device used in the child of a fork
  orErrorLaunchFailure = 12,      // a kernel failed
  orErrorAlreadyRegistered = 13,  // orHostRegister of memory that is pinned already
  orErrorNotRegistered = 14,      // orHostUnregister of memory that is not
  orErrorNotSupported = 15,       // e.g. elapsed time of an event without timing
  orErrorShutdown = 16,           // the process exits
  orErrorProcessEnded = 17,       // another process ended before it did what was waited for
  // Of captures; all but orErrorCaptureWrongThread leave the capture invalid.
  orErrorCaptureUnsupported = 18,  // a call that a capture does not allow
  orErrorCaptureInvalidated = 19,  // the stream's capture is invalid since an earlier call
  orErrorCaptureUnjoined = 20,     // a forked stream was not joined before the capture's end
  orErrorCaptureIsolation = 21,    // captured work and other work would depend on each other
  orErrorCaptureWrongThread = 22   // another thread began the capture
} orError_t;

// Constant texts; "unrecognized error" for a number that is none.
OPENREG_API const char* orGetErrorName(orError_t error);    // "orErrorInvalidValue"
OPENREG_API const char* orGetErrorString(orError_t error);  // "invalid argument"

// The last error of the calling thread; GetLast sets it back to orSuccess, Peek leaves it.
OPENREG_API orError_t orGetLastError(void);
OPENREG_API orError_t orPeekAtLastError(void);

// One sentence about the last call of this thread that failed; valid until the next failing call.
OPENREG_API const char* orGetLastErrorDetail(void);

OPENREG_API orError_t orGetVersion(int* version);

// ----------------------------------------------------------------------------------------- devices
// Tier 1; orDeviceReset, the priorities and launch blocking: tier 2.

typedef struct orDeviceProperties {
  char name[64];
  size_t total_memory;                  // bytes
  size_t allocation_granularity;        // bytes: orMalloc rounds up to it
  int major, minor;                     // capability
  int multi_processor_count;            // CPU cores that kernels may use
  int max_threads_per_multi_processor;  // of kernels, at the same time
  int warp_size;                        // threads that run in lockstep; 1: each for itself
  size_t l2_cache_size;                 // bytes of the last cache before memory; 0: not known
  uint8_t uuid[16];  // of the device, the same in all processes until the machine restarts
} orDeviceProperties;

// Sets up the driver for this process: reads the environment and reserves what the devices need.
// Every other function that needs a device does so on demand; this one reports what is wrong before
// a program relies on it. A second call does nothing.
//   orErrorSystem  the operating system refused something; the detail names the limit
//   orErrorInvalidValue  a variable of the environment; the detail names it
//   orErrorForked  this is the child of a fork after the first use of a device
OPENREG_API orError_t orInit(void);

// Ends the device's threads: a kernel that runs is waited for, queued ones are dropped. Called at
// exit; a second call does nothing. Afterwards what allocates, launches or waits returns
// orErrorShutdown, and so does a query of work that was dropped; other questions are answered, and
// memory can still be freed.
OPENREG_API orError_t orShutdown(void);

// These three do not touch a device: no thread starts, nothing is mapped.
OPENREG_API orError_t orGetDeviceCount(int* count);
OPENREG_API orError_t orGetDevice(int* device);
OPENREG_API orError_t orSetDevice(int device);

OPENREG_API orError_t orGetDeviceProperties(orDeviceProperties* properties, int device);

// Bytes of the current device that orMalloc could still give, and its capacity.
OPENREG_API orError_t orMemGetInfo(size_t* free_bytes, size_t* total_bytes);

// Waits for all streams of the current device; returns (and clears) the first error among them.
OPENREG_API orError_t orDeviceSynchronize(void);

// Waits for all streams of the current device, then destroys its streams and events and frees its
// memory; pending errors are dropped. Handles and pointers from before are invalid afterwards.
OPENREG_API orError_t orDeviceReset(void);

// Range for orStreamCreateWithPriority; a lower number is a higher priority. Among streams that
// wait for the executor of parallel kernels the highest priority goes first.
OPENREG_API orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest);

// 1: each launch waits for its kernel and returns its error. Process-wide.
OPENREG_API orError_t orSetLaunchBlocking(int blocking);
OPENREG_API orError_t orGetLaunchBlocking(int* blocking);

// ------------------------------------------------------------------------------------------ memory
// Tier 1: allocation, attributes, copies and fills, orMemTrim. Tier 2: pinned memory.

typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3,
  orMemcpyDefault = 4  // told from the pointers
} orMemcpyKind;

typedef enum orMemoryType {
  orMemoryTypeUnmanaged = 0,  // host memory that OpenReg knows nothing of
  orMemoryTypeDevice = 1,
  orMemoryTypeHost = 2  // pinned: from orMallocHost, or registered
} orMemoryType;

typedef struct orPointerAttributes {
  orMemoryType type;
  int device;     // -1 for unmanaged memory
  void* pointer;  // as asked
  void* base;     // start of the allocation that holds it; null for unmanaged memory
  size_t size;    // bytes of that allocation
  int imported;   // 1: from orIpcImport
} orPointerAttributes;

// Memory of the current device. Zero bytes give a null pointer and success. The content of
// new memory is unspecified, as on real hardware: what was there before it was freed, or zero.
// orFree takes what orMalloc gave, whatever device is current, and waits for nothing: the caller
// sees to it that no queued kernel uses the memory any more.
//   orErrorOutOfMemory           no free range of the device is large enough
//   orErrorInvalidDevicePointer  orFree of an interior, freed, imported or foreign pointer
OPENREG_API orError_t orMalloc(void** pointer, size_t size);
OPENREG_API orError_t orFree(void* pointer);

// Pinned host memory: async copies from and to it return before they are done. The host may read
// and write it; kernels see it at the same address. orHostRegister pins memory of the caller's, all
// bytes of which have to be unpinned so far (else orErrorAlreadyRegistered); orFreeHost and
// orHostUnregister take the start of what the matching call pinned. No page is locked.
OPENREG_API orError_t orMallocHost(void** pointer, size_t size);
OPENREG_API orError_t orFreeHost(void* pointer);
OPENREG_API orError_t orHostRegister(void* pointer, size_t size);
OPENREG_API orError_t orHostUnregister(void* pointer);

// Never fails for a readable pointer of any kind, interior pointers included. A device address
// where no allocation lives gives orErrorInvalidDevicePointer.
OPENREG_API orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* pointer);

// Copies. Both ranges have to lie inside one live allocation each (or in unmanaged host memory),
// and the kind has to agree with the pointers. orMemcpy and orMemset run after all work of the
// current device's default stream and return when they are done; they return, and clear, a pending
// error of that stream. The Async forms are queued on `stream`; from or to unmanaged (pageable)
// host memory they return only when the host memory may be reused. Ranges may overlap. Zero bytes
// are a success, whatever the pointers. Fills take device memory or pinned host memory.
//   orErrorInvalidCopy           a range leaves its allocation, or the kind is wrong
//   orErrorInvalidDevicePointer  no allocation lives at a device address
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

// Gives the pages of free memory of the current device back to the system; blocks that another
// process has open are left out. `released` (may be null): bytes given back; 0 from a driver that
// cannot do it.
OPENREG_API orError_t orMemTrim(size_t* released);

// ---------------------------------------------------------------------------------------- streams
// Tier 1: orGetDefaultStream, orStreamGetDevice, orStreamQuery, orStreamSynchronize. Tier 2: the
// rest. A driver of tier 1 has one stream per device, its default stream.

// A stream of the current device. Its thread starts with the first command that needs one. `flags`
// is 0; a priority out of the range is orErrorInvalidValue. At most 4096 streams exist at a time.
OPENREG_API orError_t orStreamCreate(orStream_t* stream);
OPENREG_API orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned flags, int priority);

// The stream runs what is queued and then goes away; the call does not wait. An error that its
// kernels leave goes to the next synchronization of its device.
OPENREG_API orError_t orStreamDestroy(orStream_t stream);

// The default stream of a device, which always exists and cannot be destroyed.
OPENREG_API orError_t orGetDefaultStream(orStream_t* stream, int device);

OPENREG_API orError_t orStreamGetPriority(orStream_t stream, int* priority);
OPENREG_API orError_t orStreamGetDevice(orStream_t stream, int* device);

// orSuccess when all commands are done, otherwise orErrorNotReady; orErrorShutdown when they will
// not be done, because the process exits. Does not return a kernel's error.
OPENREG_API orError_t orStreamQuery(orStream_t stream);
OPENREG_API orError_t orStreamSynchronize(orStream_t stream);

// Commands queued on `stream` from now on wait for the work that `event` has captured. The streams
// may be of different devices, and either may be destroyed afterwards. What the event captures is
// read now: recording it again does not change this wait. An event that was never recorded is no
// wait, nor is one recorded on `stream` itself, which runs in order anyway.
OPENREG_API orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned flags);

// ------------------------------------------------------------------------------------------ events
// Tier 2; events between processes: tier 3.

enum {
  orEventDisableTiming = 0x0,
  orEventEnableTiming = 0x1,
  orEventInterprocess = 0x2,  // not with timing: orErrorInvalidValue
};
// An event of the current device. At most 1048576 exist at a time.
OPENREG_API orError_t orEventCreate(orEvent_t* event);  // without timing
OPENREG_API orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags);
OPENREG_API orError_t orEventDestroy(orEvent_t event);
OPENREG_API orError_t orEventGetDevice(orEvent_t event, int* device);

// Captures the work that is queued on `stream` now (it replaces an earlier record); with timing,
// the time at which that is done too. The stream has to be one of the event's device, else
// orErrorInvalidDevice. An event that was never recorded is complete.
OPENREG_API orError_t orEventRecord(orEvent_t event, orStream_t stream);
// orSuccess or orErrorNotReady; orErrorShutdown when the work was dropped by the process's exit.
OPENREG_API orError_t orEventQuery(orEvent_t event);
OPENREG_API orError_t orEventSynchronize(orEvent_t event);  // returns a pending error of its stream

// Milliseconds between two timed events which are complete; orErrorNotReady while one is not,
// orErrorNotSupported without timing, orErrorInvalidValue if one was never recorded or they are of
// two devices.
OPENREG_API orError_t orEventElapsedTime(float* milliseconds, orEvent_t start, orEvent_t end);

// Events between processes of one user. The handle of an event with orEventInterprocess may travel
// by any way and be opened often. What it opens is an event of device `device` in that process, for
// orEventDestroy: the process may query it and wait for it, on the host and on its streams, but not
// record it (orErrorNotSupported). Each wait is for what the event had captured when it began.
//   orErrorInvalidValue  no handle; of this process itself; an event without orEventInterprocess;
//                        of a process that ended, or an event destroyed, before the handle was
//                        opened
//   orErrorInvalidDevice  this process has no device of that index
//   orErrorInvalidHandle  a query or wait, here: the process that made the event destroyed it
//   orErrorProcessEnded   a query or wait, here: that process ended before it came so far. A wait
//                         on a stream fails as a kernel does: the stream's next synchronization
//                         says it.
typedef struct orIpcEventHandle {
  unsigned char reserved[64];
} orIpcEventHandle;
OPENREG_API orError_t orIpcGetEventHandle(orIpcEventHandle* handle, orEvent_t event);
OPENREG_API orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle* handle);

// ------------------------------------------------------------------- memory shared by processes
// Tier 3.

// Sharing device memory between processes of one user, in the order of streams. A handle names
// `size` bytes at `pointer`, of an own or an imported allocation, and what `stream` has queued now.
// It may travel by any way and is good for one import, by any process. The bytes count as exported
// until then, and for their owner while another process has them imported; a kill ends that too.
// The exporter must keep them meanwhile, and asks by orIpcIsExported. Bytes of an allocation that
// its owner frees stay until the last importer has released them.
//
// Imported bytes are an allocation of their own, of device `device` in the importing process. What
// is queued on `stream` from now on waits for the exporter's work; orIpcRelease gives the bytes
// back when what `stream` has queued by then is done. The pages that hold the bytes are mapped, no
// others. A process that imports its own memory gets its own pointer, and releases nothing.
// Importing the same bytes again gives the same pointer; each import needs its orIpcRelease.
//   orErrorInvalidValue   no handle; imported already, or its bytes were freed
//   orErrorProcessEnded   the exporter ended before the import
//   orErrorInvalidDevicePointer  bytes that are no part of one live allocation; orIpcRelease of
//                         a pointer that is not imported
//   orErrorInvalidDevice  the stream is of another device, or this process has no such device
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

// A kernel of this device: what a kernel is made of, and how a program gets one, is the driver's.
// (Of the emulation: openreg_emulation.h.)
typedef const struct orKernel* orKernel_t;

// Most bytes of arguments that a launch copies.
#define OPENREG_MAX_ARGUMENT_BYTES 448

// Queues a kernel on `stream`. `arguments`: `size` bytes which may be moved by memcpy; copied
// before the call returns, to an address aligned to 16. Blocks only while the queue of the stream
// is full. With launch blocking, waits for the kernel and returns its error.
OPENREG_API orError_t orLaunchKernel(orStream_t stream, orKernel_t kernel, const void* arguments,
                                     size_t size);

// Queues a function of the host: never inline, never in parallel with other commands of the stream.
typedef void (*orHostFn_t)(void* data);
OPENREG_API orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t function, void* data);

// 1 while the calling thread runs a host function, or a kernel where kernels run on the host.
OPENREG_API int orInKernel(void);

// ------------------------------------------------------------------------------------------ graphs
// Tier 3. A driver without graphs still answers orStreamGetCaptureInfo (no capture) and
// orThreadExchangeStreamCaptureMode (success).

// A graph is the work of one capture: kernels, copies, fills, host functions and the records of
// timed events, with their arguments. Nothing of it runs while it is captured. A replay is one
// command of the stream it is launched on; it runs the graph's commands one after the other, in the
// order of their capture, which no branch contradicts, and leaves the errors of kernels with that
// stream. Memory that the commands use has to live as long as the graph is replayed.
typedef struct orGraph* orGraph_t;

// Calls that are unsafe beside a capture although they touch none of its streams are those which
// may wait for any stream, or give out memory that a replay would not have: orMalloc, orMemcpy,
// orMemset, orMemcpyPeer. They are refused, and make the capture invalid,
//   orStreamCaptureModeGlobal       in every thread, while this capture goes on
//   orStreamCaptureModeThreadLocal  in the thread that began the capture
//   orStreamCaptureModeRelaxed      nowhere
typedef enum orStreamCaptureMode {
  orStreamCaptureModeGlobal = 0,
  orStreamCaptureModeThreadLocal = 1,
  orStreamCaptureModeRelaxed = 2
} orStreamCaptureMode;

// Narrows that for the calling thread, and gives back what it had (at first: global).
//   global        the rules above
//   thread_local  captures of other threads forbid this thread nothing
//   relaxed       no capture forbids this thread unsafe calls, nor orDeviceSynchronize, which waits
//                 for what runs: for an allocator that knows what it does
OPENREG_API orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode);

// From now on commands of `stream` are captured, whatever thread queues them; what was queued
// before goes on. A stream that waits for an event which was recorded on a captured stream joins
// the capture (a fork), of any device; by an event of its own that a captured stream waits for, its
// work is joined again. Events that a capture has recorded belong to it: another stream's wait for
// one joins; querying, synchronizing or timing one is refused until it is recorded otherwise; and
// waiting for one after the capture ended is orErrorCaptureIsolation. Timed ones are recorded by
// each replay. Refused on captured streams, and made invalid by it, are: synchronizing or querying
// the stream or its device, orDeviceReset, orStreamDestroy, waiting for an event from outside of
// the capture, copies from and to pageable memory, and the functions that run on a captured default
// stream and wait.
OPENREG_API orError_t orStreamBeginCapture(orStream_t stream, orStreamCaptureMode mode);

// Ends the capture which was begun on `stream`, in the thread that began it (any thread, if it is
// relaxed). `graph` is null if the capture turns out to be invalid; then the error tells why, the
// streams are as before, and what was captured is released.
//   orErrorInvalidValue          no capture was begun on `stream`
//   orErrorCaptureUnjoined       work of a forked stream was not joined
OPENREG_API orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph);

typedef enum orStreamCaptureStatus {
  orStreamCaptureStatusNone = 0,
  orStreamCaptureStatusActive = 1,
  orStreamCaptureStatusInvalidated = 2
} orStreamCaptureStatus;

// `id` (may be null): a number of the capture that no other one of the process has; 0 for none.
// Never makes a capture invalid.
OPENREG_API orError_t orStreamGetCaptureInfo(orStream_t stream, orStreamCaptureStatus* status,
                                             uint64_t* id);

// Queues a replay on `stream`, of the device that the graph was captured on. Any number of replays
// may be queued. Those of one graph never overlap: on another stream than the last one, a replay
// waits for it. A captured stream is orErrorCaptureUnsupported: graphs do not nest. With launch
// blocking, waits and returns the first error of the graph's kernels.
OPENREG_API orError_t orGraphLaunch(orGraph_t graph, orStream_t stream);

// Does not wait: what the graph holds is released when the replays that are queued have run.
OPENREG_API orError_t orGraphDestroy(orGraph_t graph);

OPENREG_API orError_t orGraphGetNodeCount(orGraph_t graph, size_t* count);

// Writes the graph's commands and their order to a file, in the language of Graphviz (DOT).
OPENREG_API orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path);

// ---------------------------------------------------------------------------------------- activity
// Tier 3.

// What the device did, and when: for a profiler. While tracing is on, each call that gives work to
// a device, waits for it or allocates leaves a record, and so does each piece of work when it is
// done: a kernel, a copy, a fill or a host function, whether it was queued or ran within its call,
// and each one of a graph at each replay. A call and its work have the same correlation.
typedef enum orActivityKind {
  orActivityRuntime = 0,  // a call of this interface, on a thread of the host
  orActivityKernel = 1,
  orActivityMemcpy = 2,
  orActivityMemset = 3,
  orActivityHostFunction = 4
} orActivityKind;

typedef struct orActivity {
  orActivityKind kind;
  uint32_t correlation;  // of a call and of its work; from 1
  const char* name;      // of the function, or of the kernel (may be null); never freed
  uint64_t start_ns;     // of CLOCK_MONOTONIC, as all times here
  uint64_t end_ns;
  uint64_t queued_ns;        // when the call queued the work; of a call: 0
  uint64_t external_id;      // the id that the calling thread had pushed last; 0: none
  uint64_t user_id;          // the same for the other kind of ids
  uint64_t bytes;            // of a copy, a fill or an allocation
  uint64_t object;           // of a call: its event, graph or pointer, if it has one
  int32_t thread;            // that called: gettid()
  int32_t device;            // of the stream; -1 for a call without a stream
  int32_t stream;            // index in this process: of each device, the first is its default
                             // stream; -1 for a call without a stream
  int32_t graph;             // number of the graph, from 1; 0: not of a graph
  int32_t node;              // of the graph, from 0
  orMemcpyKind copy;         // of a copy
  orMemoryType source;       // of a copy
  orMemoryType destination;  // of a copy or a fill
} orActivity;

// Records go to buffers of the profiler's, one per thread at a time. `requested` gives one: `size`
// bytes, aligned to 8; null, and the record is dropped and counted. `completed` takes it back with
// `used` bytes of records. Either may be called by any thread that has a record to write, workers
// of the device included, and by orActivityFlushAll: they must be quick, must not call this
// interface, and must not take a lock that a caller of orActivityFlushAll holds. Null pointers
// unregister. A thread gives its buffer back when it ends, before a join returns.
// orErrorNotPermitted while tracing is on, and while other functions are registered: there is one
// profiler at a time.
typedef void (*orActivityBufferRequested_t)(void** buffer, size_t* size);
typedef void (*orActivityBufferCompleted_t)(void* buffer, size_t used);
OPENREG_API orError_t orActivityRegisterCallbacks(orActivityBufferRequested_t requested,
                                                  orActivityBufferCompleted_t completed);

// Work of calls that come while tracing is on is recorded when it runs, also after the end of
// tracing: a profiler that wants all of it disables and then flushes. A second call of the same
// kind does nothing.
OPENREG_API orError_t orActivityEnableTracing(void);
OPENREG_API orError_t orActivityDisableTracing(void);
OPENREG_API int orActivityIsEnabled(void);

// Hands the buffers of all threads to `completed`, whether they are full or not. While tracing is
// on, what is recorded during the call may be in or not. After it was turned off, the call waits
// first until all work that will be recorded has run, and the calls that submitted it have
// returned, on whatever thread: then the profiler has all records and all of its buffers. Calls
// that wait themselves (orStreamSynchronize and its like) are not waited for: they are recorded if
// they return while tracing is on. In a kernel or a host function nothing is waited for. Errors of
// kernels stay with their streams.
OPENREG_API orError_t orActivityFlushAll(void);

// How many records this process has written to buffers, and how many it has dropped because there
// was no buffer.
OPENREG_API orError_t orActivityGetCounts(uint64_t* recorded, uint64_t* dropped);

// Ids of the program's own, which the records of a thread's calls carry, and those of their work: a
// stack per thread and kind. A pop without a push is orErrorInvalidValue; `id` may be null.
typedef enum orActivityIdKind { orActivityIdExternal = 0, orActivityIdUser = 1 } orActivityIdKind;
OPENREG_API orError_t orActivityPushExternalCorrelationId(orActivityIdKind kind, uint64_t id);
OPENREG_API orError_t orActivityPopExternalCorrelationId(orActivityIdKind kind, uint64_t* id);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // RUNTIME_DEVICE_OPENREG_H_
