// SPDX-License-Identifier: BSD-3-Clause
//
// openreg_emulation.h - the interface that only the emulated device has.
//
// openreg.h is the interface of any driver. This header adds what depends on the CPU emulating the
// device: kernels are host functions, they see device memory at separate addresses, they run on
// threads that this library schedules, and they may fail with a payload such as a C++ exception.
// Only the emulation's packages include it: aten, and runtime/emulation, which registers the
// functions that the portable packages need. Bazel enforces this by visibility, and
// //tools:architecture by a query.
//
// The rules for ownership, threads and errors are those of openreg.h. The version is
// OPENREG_VERSION.
#ifndef RUNTIME_DEVICE_OPENREG_EMULATION_H_
#define RUNTIME_DEVICE_OPENREG_EMULATION_H_

#include "runtime/device/openreg.h"

// Gives a field a default value, so that a C++ initializer may omit it.
#ifdef __cplusplus
#define OPENREG_NULL_BY_DEFAULT = nullptr
#else
#define OPENREG_NULL_BY_DEFAULT
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------- memory, for kernels

// Device memory is mapped twice: at the device address, which the host cannot access, and at the
// kernel address, which only kernels use. The distance between the two is constant.

// Gets the address at which a kernel sees `pointer`. Host pointers are returned unchanged.
OPENREG_API orError_t orGetKernelPointer(void** kernel_pointer, const void* pointer);

// Gets the window with which callers translate addresses on a hot path: an address p with
// (uintptr_t)p - base < size is a device address, and kernels use p + kernel_offset. The window is
// constant as long as the process lives.
typedef struct orAddressWindow {
  uintptr_t base;
  size_t size;
  ptrdiff_t kernel_offset;
} orAddressWindow;
OPENREG_API orError_t orGetAddressWindow(orAddressWindow* window);

// Checks a pointer that a kernel would keep. Returns orSuccess for null and for a device address,
// otherwise orErrorInvalidDevicePointer.
OPENREG_API orError_t orCheckKernelPointer(const void* pointer);

// Registers a function with which the fault report finds the part of an allocation that contains an
// address. An allocator that subdivides the memory from orMalloc uses this. The resolver is called
// in a signal handler with a device address. It must be async-signal-safe, and it returns 0 if it
// does not know the address. There is at most one resolver per process; NULL unregisters it.
typedef struct orMemoryRange {
  const void* base;
  size_t size;
  int in_use;  // 0 if this part is free, so that the access is a use after free
} orMemoryRange;
typedef int (*orMemoryResolver_t)(const void* pointer, orMemoryRange* range);
OPENREG_API orError_t orSetMemoryResolver(orMemoryResolver_t resolver);

// ----------------------------------------------------------------------------------------- kernels

// A kernel's function. It runs on its own copy of the argument bytes. It returns orSuccess, or an
// error after it has called orKernelFail. It runs exactly once, or not at all if the process exits
// first. A captured function runs once per replay. It must not throw.
typedef orError_t (*orKernelFunction_t)(void* arguments);

enum {
  // Cheap and single-threaded. Runs on the launching thread if its stream is idle.
  orLaunchInline = 0x1,
  // Uses a team of threads. Runs on the executor, the one thread in the process that owns a team,
  // and never inline, whatever the other flags.
  orLaunchParallel = 0x2,
  // Single-threaded and done within a few hundred microseconds. The executor may run it between two
  // parallel kernels, which saves two wake-ups. orLaunchInline implies it.
  orLaunchShort = 0x4,
  // May use a team, but is so small that a team rarely pays off. It gets one only if a lot of such
  // work is queued and the host, which is waiting for the stream, leaves its core free. Otherwise a
  // single thread runs it, as with orLaunchShort. orKernelHasTeam tells the kernel which case
  // applies.
  orLaunchMoldable = 0x8,
  // The attribute `repeatable` is set.
  orLaunchHasRepeatable = 0x10,
  // The attribute `copy` is set.
  orLaunchHasCopy = 0x20,
};

// Says how to capture a kernel that consumes its arguments. The graph stores `kernel` instead of
// the launched function. `kernel` may run any number of times, including never, each time with a
// copy of the argument bytes as they were launched, and never on two threads at once. `release`
// (may be null) is called once with those bytes when the graph and all its replays have ended. It
// may run on any thread, including the stream's. It may free and destroy; calls that enqueue, wait
// or allocate return orErrorNotPermitted, as in a kernel. If `kernel` is null, the launch cannot be
// captured.
typedef struct orRepeatable {
  orKernelFunction_t kernel;
  void (*release)(void* arguments);
} orRepeatable;

// Describes a kernel that only moves bytes. The profiler records it as a copy or a fill.
typedef struct orCopyDescription {
  size_t bytes;
  orMemcpyKind kind;  // orMemcpyDefault means a fill, which has no source
  orMemoryType source;
  orMemoryType destination;
} orCopyDescription;

typedef struct orLaunchAttributes {
  const char* name;  // operator's name for errors and traces; static storage; may be null
  uint32_t flags;
  uint32_t work_ns;  // with orLaunchParallel or orLaunchMoldable: estimated time on one thread
  // Read with orLaunchHasRepeatable; static storage. Without that flag, the kernel itself is
  // repeatable.
  const orRepeatable* repeatable OPENREG_NULL_BY_DEFAULT;
  // Read with orLaunchHasCopy. Without that flag, the kernel is recorded as a kernel.
  const orCopyDescription* copy OPENREG_NULL_BY_DEFAULT;
} orLaunchAttributes;

// Returns 1 while activity is being recorded or a stream is being captured. Otherwise, launches
// ignore copy descriptions, and callers need not fill them in.
OPENREG_API int orLaunchReadsCopy(void);

// What an orKernel_t points to. orLaunchKernel reads the struct and its attributes before it
// returns.
struct orKernel {
  orKernelFunction_t function;
  const orLaunchAttributes* attributes;  // may be null
};

// Reports an error from inside a kernel. The stream keeps it if it is the first one since the last
// synchronization. `message` is copied. `payload` (may be null) is passed to the caller of
// orTakeErrorPayload; `drop` frees it if no caller takes it. Returns `error`, so that a kernel can
// `return orKernelFail(...)`. Outside a kernel, the function returns orErrorNotPermitted and does
// not take ownership of `payload`.
OPENREG_API orError_t orKernelFail(orError_t error, const char* message, void* payload,
                                   void (*drop)(void* payload));

// Returns the payload that a kernel passed to orKernelFail, or null if there is none. Call it after
// a call that returned the kernel's error. The caller owns the payload.
OPENREG_API void* orTakeErrorPayload(void);

// Returns 1 inside a kernel that may use the executor's team.
OPENREG_API int orKernelHasTeam(void);

// Returns 1 inside a kernel that runs on a host thread: the thread that launched it or launched its
// graph.
OPENREG_API int orKernelOnHost(void);

// ------------------------------------------------------------------- files of other processes
// A collective library uses these functions to share host memory between the processes of one user,
// and to let a kernel read the device memory of other processes. A handle may be sent by any means
// and used any number of times. No file remains in any folder, however a process ends.

typedef struct orIpcFileHandle {
  unsigned char reserved[64];
} orIpcFileHandle;

// Creates `size` zeroed bytes of host memory, mapped at `memory` until orIpcUnmapFile. Other
// processes can map them as long as this process keeps them mapped.
OPENREG_API orError_t orIpcCreateFile(orIpcFileHandle* handle, void** memory, size_t size);

// Gets a handle to the whole memory of one of this process's devices.
OPENREG_API orError_t orIpcGetDeviceFile(orIpcFileHandle* handle, int device);

// Gets the offset of a pointer in its device's file. Returns orErrorInvalidDevicePointer for a
// pointer that is not this process's own device memory; imported memory is not.
OPENREG_API orError_t orIpcGetFileOffset(size_t* offset, const void* pointer);

// Maps `size` bytes of a file at `memory`. The file may belong to any process, including this one.
// Host memory is mapped read-write, and device memory read-only. The owner of a device may free
// memory while another process reads it, so both sides must agree on its lifetime. The mapping
// outlives the owner, until orIpcUnmapFile. Returns orErrorProcessEnded if the owner has ended or
// has unmapped the file.
OPENREG_API orError_t orIpcMapFile(void** memory, size_t* size, const orIpcFileHandle* handle);
OPENREG_API orError_t orIpcUnmapFile(void* memory);

// Sets `there` to 1 if the owner is alive and still has the file. May be called inside kernels.
OPENREG_API orError_t orIpcFileIsThere(int* there, const orIpcFileHandle* handle);

#ifdef __cplusplus
}  // extern "C"

#include <atomic>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

// Launches a host function as the kernel, in C++. `attributes` may be null.
inline orError_t orLaunchKernel(orStream_t stream, orKernelFunction_t function,
                                const void* arguments, size_t size,
                                const orLaunchAttributes* attributes) {
  const orKernel kernel{function, attributes};
  return orLaunchKernel(stream, &kernel, arguments, size);
}

// Launches any callable with any arguments, which are copied or moved into the launch. The callable
// may return an orError_t, as a kernel does; any other result is dropped.
//   orLaunchKernel(stream, [](float* p, int n) { ... }, pointer, 16);
// If captured, each replay calls it with its arguments as lvalues. A callable that accepts only
// rvalues cannot be captured.
template <class Function, class... Arguments,
          class = std::enable_if_t<
              std::is_invocable_v<std::decay_t<Function>, std::decay_t<Arguments>...>>>
inline orError_t orLaunchKernel(orStream_t stream, Function&& function, Arguments&&... arguments) {
  using Callable = std::decay_t<Function>;
  using Values = std::tuple<std::decay_t<Arguments>...>;
  // The launch and the kernel own the closure jointly, because the error may come from a launch
  // that was refused or, with launch blocking, from a kernel that has run. It uses plain new and
  // delete, because the kernel's share passes through a C interface.
  struct Closure {
    Callable function;
    Values arguments;
    std::atomic<int> owners{2};
    Closure(Function&& function, Arguments&&... arguments)
        : function(std::forward<Function>(function)),
          arguments(std::forward<Arguments>(arguments)...) {}
    void Drop(int count) {
      if (owners.fetch_sub(count, std::memory_order_acq_rel) == count) {
        delete this;
      }
    }
  };
  Closure* closure =
      new Closure(std::forward<Function>(function), std::forward<Arguments>(arguments)...);
  const orKernelFunction_t run = [](void* packed) {
    auto drop = [](Closure* owned) { owned->Drop(1); };
    std::unique_ptr<Closure, decltype(drop)> owned(*static_cast<Closure**>(packed), drop);
    using Result = std::invoke_result_t<Callable, std::decay_t<Arguments>...>;
    if constexpr (std::is_same_v<Result, orError_t>) {
      return std::apply(owned->function, std::move(owned->arguments));
    } else {
      std::apply(owned->function, std::move(owned->arguments));
      return orSuccess;
    }
  };
  static constexpr orRepeatable kRepeatable = [] {
    orRepeatable repeatable{};
    if constexpr (std::is_invocable_v<Callable&, std::decay_t<Arguments>&...>) {
      repeatable.kernel = [](void* packed) {
        Closure* owned = *static_cast<Closure**>(packed);
        using Result = std::invoke_result_t<Callable&, std::decay_t<Arguments>&...>;
        if constexpr (std::is_same_v<Result, orError_t>) {
          return std::apply(owned->function, owned->arguments);
        } else {
          std::apply(owned->function, owned->arguments);
          return orSuccess;
        }
      };
      repeatable.release = [](void* packed) { (*static_cast<Closure**>(packed))->Drop(1); };
    }
    return repeatable;
  }();
  const orLaunchAttributes attributes{nullptr, orLaunchHasRepeatable, 0, &kRepeatable};
  const orError_t error = orLaunchKernel(stream, run, &closure, sizeof(closure), &attributes);
  // At process exit it is unknown whether the kernel will run, so its share is leaked.
  const bool never_runs = error != orSuccess && error != orErrorShutdown &&
                          closure->owners.load(std::memory_order_acquire) == 2;
  closure->Drop(never_runs ? 2 : 1);
  return error;
}
#endif  // __cplusplus

#endif  // RUNTIME_DEVICE_OPENREG_EMULATION_H_
