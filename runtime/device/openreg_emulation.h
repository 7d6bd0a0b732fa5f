// SPDX-License-Identifier: BSD-3-Clause
//
// openreg_emulation.h - the part of the interface that only the emulated device has.
//
// openreg.h is the interface of any driver. This header adds functions for properties that result
// from the emulation on the CPU. Kernels are host functions. They use separate addresses for device
// memory, run on threads that this library schedules, and may fail with a payload such as a C++
// exception. Only the emulation's packages include this header: aten, and runtime/emulation, which
// registers the functions that the portable packages need. Bazel enforces this by visibility, and
// //tools:architecture by a query.
//
// The rules for ownership, threads and errors are those of openreg.h. The version is
// OPENREG_VERSION.
#ifndef RUNTIME_DEVICE_OPENREG_EMULATION_H_
#define RUNTIME_DEVICE_OPENREG_EMULATION_H_

#include "runtime/device/openreg.h"

// Gives a field a default value, so that C++ initializers may omit the field.
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
// kernel address, which only kernels use. The distance between the two addresses is constant.

// Gets the address that a kernel must use for `pointer`. Host pointers are returned unchanged.
OPENREG_API orError_t orGetKernelPointer(void** kernel_pointer, const void* pointer);

// Gets the window with which callers translate addresses on a hot path. An address p with
// (uintptr_t)p - base < size is a device address, and kernels use p + kernel_offset. The window is
// constant for the lifetime of the process.
typedef struct orAddressWindow {
  uintptr_t base;
  size_t size;
  ptrdiff_t kernel_offset;
} orAddressWindow;
OPENREG_API orError_t orGetAddressWindow(orAddressWindow* window);

// Checks a pointer that a kernel would store. Returns orSuccess for null and for a device address,
// and orErrorInvalidDevicePointer otherwise.
OPENREG_API orError_t orCheckKernelPointer(const void* pointer);

// Registers a function (resolver) with which the fault report finds the part of an allocation that
// contains an address. It is for an allocator that subdivides memory from orMalloc. The resolver is
// called in a signal handler, with a device address, and must be async-signal-safe. It returns 0 if
// no part contains the address. A process has at most one resolver; NULL unregisters it.
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
// first. A captured function runs once per replay. It must not throw an exception.
typedef orError_t (*orKernelFunction_t)(void* arguments);

enum {
  // Cheap and single-threaded. Runs on the launching thread if its stream is idle.
  orLaunchInline = 0x1,
  // Uses a team of threads. Runs on the executor, which is the only thread in the process that owns
  // a team. Never runs inline, regardless of the other flags.
  orLaunchParallel = 0x2,
  // Single-threaded, with a duration of at most a few hundred microseconds. The executor may run it
  // between two parallel kernels, which avoids two wake-ups. orLaunchInline implies this flag.
  orLaunchShort = 0x4,
  // May use a team, but is so small that a team is rarely worth its cost. The kernel gets a team
  // only if much such work is queued and the host, which is waiting for the stream, leaves its core
  // free. Otherwise a single thread runs it, as with orLaunchShort. The kernel can call
  // orKernelHasTeam to find out.
  orLaunchMoldable = 0x8,
  // The attribute `repeatable` is set.
  orLaunchHasRepeatable = 0x10,
  // The attribute `copy` is set.
  orLaunchHasCopy = 0x20,
};

// Describes how to capture a kernel that consumes its arguments. The graph stores `kernel` instead
// of the launched function. `kernel` may run any number of times, including never, but not on two
// threads at the same time. Each run receives a copy of the argument bytes as they were launched.
//
// `release` (may be null) is called once with those bytes, after the graph and all its replays have
// ended. It may run on any thread, including the stream's worker. It may call functions that free
// and destroy. As in a kernel, functions that enqueue, wait or allocate return orErrorNotPermitted.
// If `kernel` is null, the launch cannot be captured.
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
  // Read only with orLaunchHasRepeatable; must have static storage. Without that flag, the kernel
  // itself is repeatable.
  const orRepeatable* repeatable OPENREG_NULL_BY_DEFAULT;
  // Read only with orLaunchHasCopy. Without that flag, the launch is recorded as a kernel.
  const orCopyDescription* copy OPENREG_NULL_BY_DEFAULT;
} orLaunchAttributes;

// Returns 1 while activity is being recorded or a stream is being captured. At all other times,
// launches ignore copy descriptions, so callers need not provide them.
OPENREG_API int orLaunchReadsCopy(void);

// The object to which an orKernel_t points. orLaunchKernel reads the struct and its attributes
// before it returns.
struct orKernel {
  orKernelFunction_t function;
  const orLaunchAttributes* attributes;  // may be null
};

// Reports an error from inside a kernel. The stream stores the error if it is the first one since
// the last synchronization. `message` is copied. `payload` (may be null) is passed to the caller of
// orTakeErrorPayload. If no caller takes it, `drop` frees it. Returns `error`, so that a kernel can
// `return orKernelFail(...)`. Outside a kernel, the function returns orErrorNotPermitted and does
// not take ownership of `payload`.
OPENREG_API orError_t orKernelFail(orError_t error, const char* message, void* payload,
                                   void (*drop)(void* payload));

// Returns the payload that a kernel passed to orKernelFail, or null if there is none. Must be
// called after a call that returned the kernel's error. The caller becomes the owner of the
// payload.
OPENREG_API void* orTakeErrorPayload(void);

// Returns 1 inside a kernel that may use the executor's team.
OPENREG_API int orKernelHasTeam(void);

// Returns 1 inside a kernel that runs on a host thread: the thread that launched the kernel or its
// graph.
OPENREG_API int orKernelOnHost(void);

// ------------------------------------------------------------------- files of other processes
// A collective library uses these functions to share host memory between the processes of one user,
// and to let a kernel read the device memory of other processes. A handle may be sent by any means
// and used any number of times. The files appear in no folder, so nothing remains however a process
// ends.

typedef struct orIpcFileHandle {
  unsigned char reserved[64];
} orIpcFileHandle;

// Creates `size` zeroed bytes of host memory, mapped at `memory` until orIpcUnmapFile. Other
// processes can map this memory while this process keeps it mapped.
OPENREG_API orError_t orIpcCreateFile(orIpcFileHandle* handle, void** memory, size_t size);

// Gets a handle to the entire memory of one of this process's devices.
OPENREG_API orError_t orIpcGetDeviceFile(orIpcFileHandle* handle, int device);

// Gets the offset of a pointer in its device's file. Returns orErrorInvalidDevicePointer unless the
// pointer points to device memory that this process owns. Imported memory belongs to another
// process.
OPENREG_API orError_t orIpcGetFileOffset(size_t* offset, const void* pointer);

// Maps `size` bytes of a file at `memory`. The file may belong to any process, including this one.
// Host memory is mapped read-write, and device memory read-only. The owner of a device may free
// memory while another process reads it, so both processes must agree on its lifetime. The mapping
// remains valid after the owner has ended, until orIpcUnmapFile. Returns orErrorProcessEnded if the
// owner has ended or has unmapped the file.
OPENREG_API orError_t orIpcMapFile(void** memory, size_t* size, const orIpcFileHandle* handle);
OPENREG_API orError_t orIpcUnmapFile(void* memory);

// Sets `there` to 1 if the owner is alive and still has the file, otherwise to 0. May be called
// inside kernels.
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
// may return an orError_t, like a kernel; any other result is ignored.
//   orLaunchKernel(stream, [](float* p, int n) { ... }, pointer, 16);
// In a captured launch, each replay calls the callable with its arguments as lvalues. A callable
// that accepts only rvalues cannot be captured.
template <class Function, class... Arguments,
          class = std::enable_if_t<
              std::is_invocable_v<std::decay_t<Function>, std::decay_t<Arguments>...>>>
inline orError_t orLaunchKernel(orStream_t stream, Function&& function, Arguments&&... arguments) {
  using Callable = std::decay_t<Function>;
  using Values = std::tuple<std::decay_t<Arguments>...>;
  // The launch and the kernel own the closure jointly. An error may come from a launch that was
  // refused, or, with launch blocking, from a kernel that has run. The class uses plain new and
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
  // At process exit it is unknown whether the kernel will run, so the kernel's share is leaked.
  const bool never_runs = error != orSuccess && error != orErrorShutdown &&
                          closure->owners.load(std::memory_order_acquire) == 2;
  closure->Drop(never_runs ? 2 : 1);
  return error;
}
#endif  // __cplusplus

#endif  // RUNTIME_DEVICE_OPENREG_EMULATION_H_
