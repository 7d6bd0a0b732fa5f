// SPDX-License-Identifier: BSD-3-Clause
//
// openreg_emulation.h - what only the emulated device has.
//
// openreg.h is the interface of any driver. This header adds what follows from the fact that the
// device is emulated by the CPU: kernels are functions of the host, they see device memory at an
// address of their own, they run on threads that this library schedules, and they may fail with a
// payload such as a C++ exception. Only the packages of the emulation include it: aten, and
// runtime/emulation, which registers with the portable packages what they need of it (Bazel checks
// that by visibility, //tools:architecture by a query).
//
// Ownership, threads and errors are as in openreg.h. Version: OPENREG_VERSION.
#ifndef RUNTIME_DEVICE_OPENREG_EMULATION_H_
#define RUNTIME_DEVICE_OPENREG_EMULATION_H_

#include "runtime/device/openreg.h"

// The default of a field, so that C++ may leave it out of an initializer.
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

// The address at which a kernel sees `pointer`. Host pointers are returned unchanged.
OPENREG_API orError_t orGetKernelPointer(void** kernel_pointer, const void* pointer);

// The same, for callers that translate on a hot path: an address p with
// (uintptr_t)p - base < size is a device address, and p + kernel_offset is what a kernel uses.
// Constant for the life of the process.
typedef struct orAddressWindow {
  uintptr_t base;
  size_t size;
  ptrdiff_t kernel_offset;
} orAddressWindow;
OPENREG_API orError_t orGetAddressWindow(orAddressWindow* window);

// For such a caller, about a pointer that a kernel would keep. orSuccess for null and for a device
// address; otherwise orErrorInvalidDevicePointer.
OPENREG_API orError_t orCheckKernelPointer(const void* pointer);

// Tells the report of a fault which part of an allocation an address lies in: for an allocator that
// divides up what orMalloc returned. The resolver is called in a signal handler with a device
// address, must be async-signal-safe, and returns 0 if it knows nothing of the address. At most one
// resolver per process; NULL unregisters it.
typedef struct orMemoryRange {
  const void* base;
  size_t size;
  int in_use;  // 0: the part is free (a use after free)
} orMemoryRange;
typedef int (*orMemoryResolver_t)(const void* pointer, orMemoryRange* range);
OPENREG_API orError_t orSetMemoryResolver(orMemoryResolver_t resolver);

// ----------------------------------------------------------------------------------------- kernels

// What a kernel runs, on a copy of the argument bytes that belongs to it. Returns orSuccess, or an
// error after it called orKernelFail. It runs exactly once, unless the process exits first: then it
// does not run at all. A captured one runs once per replay. It must not throw.
typedef orError_t (*orKernelFunction_t)(void* arguments);

enum {
  // Cheap and single-threaded: runs on the launching thread if its stream is idle.
  orLaunchInline = 0x1,
  // Uses a team of threads: runs on the one executor thread of the process that owns a team, and
  // never inline, whatever the other flags.
  orLaunchParallel = 0x2,
  // Single-threaded and over within some hundred microseconds: the executor may run it as well,
  // between two parallel kernels, which saves two wake-ups. orLaunchInline implies it.
  orLaunchShort = 0x4,
  // May use a team, but is so small that a team seldom pays: it gets one if the host sleeps until
  // the stream has advanced, so that a core is free, and much such work is queued. Otherwise one
  // thread runs it, as with orLaunchShort. orKernelHasTeam tells the kernel.
  orLaunchMoldable = 0x8,
  // The field `repeatable` of the attributes is set.
  orLaunchHasRepeatable = 0x10,
  // The field `copy` is.
  orLaunchHasCopy = 0x20,
};

// How to capture a kernel that consumes its arguments. The graph keeps `kernel` in place of the
// launched one. It may run any number of times, also never, each time with a copy of the argument
// bytes as they were launched, and never on two threads at once. `release` (may be null) is called
// once with those bytes when the graph and all its replays are over, on any thread, the stream's
// included: it may free and destroy, but what enqueues, waits or allocates returns
// orErrorNotPermitted, as in a kernel. If `kernel` is null, the launch cannot be captured.
typedef struct orRepeatable {
  orKernelFunction_t kernel;
  void (*release)(void* arguments);
} orRepeatable;

// What a kernel does that only moves bytes: it is recorded as a copy or a fill.
typedef struct orCopyDescription {
  size_t bytes;
  orMemcpyKind kind;  // orMemcpyDefault: a fill, which has no source
  orMemoryType source;
  orMemoryType destination;
} orCopyDescription;

typedef struct orLaunchAttributes {
  const char* name;  // of the operator, for errors and traces; static storage; may be null
  uint32_t flags;
  uint32_t work_ns;  // with orLaunchParallel or orLaunchMoldable: estimated time with one thread
  // With orLaunchHasRepeatable; static storage. Otherwise the kernel itself is repeatable.
  const orRepeatable* repeatable OPENREG_NULL_BY_DEFAULT;
  // With orLaunchHasCopy. Otherwise the kernel is recorded as a kernel.
  const orCopyDescription* copy OPENREG_NULL_BY_DEFAULT;
} orLaunchAttributes;

// 1 while launches read descriptions of copies, which need not be made otherwise: while activity is
// recorded, or a stream is captured.
OPENREG_API int orLaunchReadsCopy(void);

// What an orKernel_t points to. orLaunchKernel reads both before it returns.
struct orKernel {
  orKernelFunction_t function;
  const orLaunchAttributes* attributes;  // may be null
};

// Inside a kernel only: keeps the error with the stream if it is the first since the last
// synchronization. `message` is copied. `payload` (may be null) goes to the caller of
// orTakeErrorPayload; `drop` frees it if no caller takes it. Returns `error`, so that a kernel can
// `return orKernelFail(...)`. Outside of a kernel it returns orErrorNotPermitted and leaves
// `payload` alone.
OPENREG_API orError_t orKernelFail(orError_t error, const char* message, void* payload,
                                   void (*drop)(void* payload));

// After a call that returned the error of a kernel: the payload which that kernel gave to
// orKernelFail. It belongs to the caller from then on. Null if there is none.
OPENREG_API void* orTakeErrorPayload(void);

// 1 inside a kernel that may use the executor's team.
OPENREG_API int orKernelHasTeam(void);

// 1 inside a kernel that runs on a thread of the host: the one that launched it, or its graph.
OPENREG_API int orKernelOnHost(void);

// ------------------------------------------------------------------- files of other processes
// What a collective library needs: memory of the host that the processes of one user share, and a
// view of the memory of each other's devices, for kernels. A handle may travel by any way and be
// used often. Nothing is left in any folder, whatever kills a process.

typedef struct orIpcFileHandle {
  unsigned char reserved[64];
} orIpcFileHandle;

// `size` bytes of host memory, all zero, mapped at `memory` until orIpcUnmapFile; others can map
// them while this process has not.
OPENREG_API orError_t orIpcCreateFile(orIpcFileHandle* handle, void** memory, size_t size);

// All memory of a device of this process.
OPENREG_API orError_t orIpcGetDeviceFile(orIpcFileHandle* handle, int device);

// The place of a pointer in the file of its device. orErrorInvalidDevicePointer for what is no
// memory of a device of this process, imported memory included.
OPENREG_API orError_t orIpcGetFileOffset(size_t* offset, const void* pointer);

// Maps the file of any process, this one included: `size` bytes at `memory`, to write to if they
// are memory of the host, only to read if they are a device's. The owner of a device may free what
// is read: both sides have to agree on when. The mapping outlives the owner, until orIpcUnmapFile.
// orErrorProcessEnded if the owner has ended or has unmapped it.
OPENREG_API orError_t orIpcMapFile(void** memory, size_t* size, const orIpcFileHandle* handle);
OPENREG_API orError_t orIpcUnmapFile(void* memory);

// `there`: whether the owner lives and has the file. Also in kernels.
OPENREG_API orError_t orIpcFileIsThere(int* there, const orIpcFileHandle* handle);

#ifdef __cplusplus
}  // extern "C"

#include <atomic>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

// C++ form: a function of the host as the kernel. `attributes` may be null.
inline orError_t orLaunchKernel(orStream_t stream, orKernelFunction_t function,
                                const void* arguments, size_t size,
                                const orLaunchAttributes* attributes) {
  const orKernel kernel{function, attributes};
  return orLaunchKernel(stream, &kernel, arguments, size);
}

// C++ form: any callable with any arguments, copied or moved into the launch. It may return an
// orError_t, as a kernel does; another result is dropped.
//   orLaunchKernel(stream, [](float* p, int n) { ... }, pointer, 16);
// A captured one is called with its arguments as lvalues at each replay; one that takes only
// rvalues cannot be captured.
template <class Function, class... Arguments,
          class = std::enable_if_t<
              std::is_invocable_v<std::decay_t<Function>, std::decay_t<Arguments>...>>>
inline orError_t orLaunchKernel(orStream_t stream, Function&& function, Arguments&&... arguments) {
  using Callable = std::decay_t<Function>;
  using Values = std::tuple<std::decay_t<Arguments>...>;
  // Two owners, the launch and the kernel: an error may come from a launch that was refused as
  // well as from a kernel that has run (with launch blocking). Plain new and delete, because the
  // kernel's share goes through C.
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
  // At process exit it is unknown whether the kernel will run: its share stays.
  const bool never_runs = error != orSuccess && error != orErrorShutdown &&
                          closure->owners.load(std::memory_order_acquire) == 2;
  closure->Drop(never_runs ? 2 : 1);
  return error;
}
#endif  // __cplusplus

#endif  // RUNTIME_DEVICE_OPENREG_EMULATION_H_
