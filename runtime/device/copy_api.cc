// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for copies and fills. Each operation is one of the device's own
// kernels, so its stream orders it. A copy that must be done when the call returns runs on the
// calling thread, provided that the stream is idle.
#include <cinttypes>
#include <cstring>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/capture.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/stream.h"
#include "runtime/device/submission.h"
#include "runtime/device/work.h"

namespace openreg::device {
namespace {

// The largest copy that is still as cheap as a kernel that may run inline.
constexpr size_t kShortCopy = 64 * 1024;

struct Transfer {
  void* destination;
  const void* source;
  size_t size;
  static orError_t Run(void* arguments) {
    const auto* transfer = static_cast<const Transfer*>(arguments);
    std::memmove(transfer->destination, transfer->source, transfer->size);  // ranges may overlap
    return orSuccess;
  }
};

// A copy from a small pageable source. The command contains the bytes, so the host may change the
// source as soon as the call returns.
struct StagedTransfer {
  static constexpr size_t kMaxBytes = 384;
  void* destination;
  size_t size;
  unsigned char bytes[kMaxBytes];
  static orError_t Run(void* arguments) {
    const auto* transfer = static_cast<const StagedTransfer*>(arguments);
    std::memcpy(transfer->destination, transfer->bytes, transfer->size);
    return orSuccess;
  }
};
static_assert(sizeof(StagedTransfer) <= OPENREG_MAX_ARGUMENT_BYTES);

struct Fill {
  void* destination;
  size_t size;
  int value;
  static orError_t Run(void* arguments) {
    const auto* fill = static_cast<const Fill*>(arguments);
    std::memset(fill->destination, fill->value, fill->size);
    return orSuccess;
  }
};

// The kind of memory at one end of a copy, and the device that owns it.
struct Endpoint {
  orMemoryType type;
  int device;  // -1 for host memory
};

orError_t Locate(const char* function, const char* which, const void* pointer, size_t size,
                 Endpoint* end) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (pointer == nullptr) {
    return Fail(orErrorInvalidValue, "%s: the %s is null", function, which);
  }
  if (!arena.Contains(pointer)) {
    const Window& half = arena.half();
    if (address + size < address || (address < half.base && address + size > half.base)) {
      return Fail(orErrorInvalidCopy,
                  "%s: the %s at %p, %zu bytes long, is not a range of host memory", function,
                  which, pointer, size);
    }
    HostBlock block;
    const bool pinned = HostMemory::Get().Find(pointer, &block);
    if (pinned && size > block.size - (address - block.base)) {
      if (block.owned) {
        return Fail(orErrorInvalidCopy,
                    "%s: the %s %p + %zu bytes exceeds its pinned allocation %p of %zu bytes",
                    function, which, pointer, size, reinterpret_cast<void*>(block.base),
                    block.size);
      }
      *end = {orMemoryTypeUnmanaged, -1};  // the host memory is only partly registered
      return orSuccess;
    }
    *end = {pinned ? orMemoryTypeHost : orMemoryTypeUnmanaged, -1};
    return orSuccess;
  }
  Allocation allocation;
  if (!Allocations::Get().Find(pointer, &allocation)) {
    return Fail(orErrorInvalidDevicePointer,
                "%s: the %s %p is a device address that is not inside any live allocation",
                function, which, pointer);
  }
  if (size > allocation.size - (address - allocation.base)) {
    return Fail(orErrorInvalidCopy,
                "%s: the %s %p + %zu bytes exceeds its allocation %p of %zu bytes on device %d",
                function, which, pointer, size, reinterpret_cast<void*>(allocation.base),
                allocation.size, allocation.device);
  }
  *end = {orMemoryTypeDevice, allocation.device};
  return orSuccess;
}

const char* KindName(orMemcpyKind kind) {
  switch (kind) {
    case orMemcpyHostToHost:
      return "orMemcpyHostToHost";
    case orMemcpyHostToDevice:
      return "orMemcpyHostToDevice";
    case orMemcpyDeviceToHost:
      return "orMemcpyDeviceToHost";
    case orMemcpyDeviceToDevice:
      return "orMemcpyDeviceToDevice";
    case orMemcpyDefault:
      return "orMemcpyDefault";
  }
  return nullptr;
}

constexpr char kWaits[] = "and this call waits: use the asynchronous form of the call";
constexpr char kPageable[] =
    "and unpinned host memory may no longer exist when the graph is replayed: use pinned memory, "
    "or copy before "
    "or after the capture";

// Returns the work that runs a transfer or a fill on a stream.
template <class Operation>
Work WorkOf(const Operation& operation, const char* name, bool is_short) {
  Work work{Command::kCopy, is_short ? Command::kAnywhere : Command::kOnWorker};
  work.may_inline = is_short;
  work.name = name;
  work.kernel = &Operation::Run;
  work.arguments = &operation;
  work.size = sizeof(operation);
  return work;
}

struct CopyRequest {
  void* destination;
  const void* source;
  size_t size;
  orMemcpyKind kind;
  int destination_device;  // -1: any device
  int source_device;
};

// Checks and submits a copy. `wait` specifies whether the copy must be done when the call returns.
orError_t Copy(const CopyRequest& request, const Submission& submission, bool wait) {
  const char* const function = submission.function();
  if (KindName(request.kind) == nullptr) {
    return Fail(orErrorInvalidValue, "%s: kind %d is not an orMemcpyKind", function,
                static_cast<int>(request.kind));
  }
  if (request.size == 0) {
    return orSuccess;
  }
  Endpoint destination, source;
  if (const orError_t error =
          Locate(function, "destination", request.destination, request.size, &destination);
      error != orSuccess) {
    return error;
  }
  if (const orError_t error = Locate(function, "source", request.source, request.size, &source);
      error != orSuccess) {
    return error;
  }
  const bool to_device = destination.type == orMemoryTypeDevice;
  const bool from_device = source.type == orMemoryTypeDevice;
  const orMemcpyKind found = to_device
                                 ? (from_device ? orMemcpyDeviceToDevice : orMemcpyHostToDevice)
                                 : (from_device ? orMemcpyDeviceToHost : orMemcpyHostToHost);
  if (request.kind != orMemcpyDefault && request.kind != found) {
    return Fail(orErrorInvalidCopy, "%s: the kind is %s, but the pointers %p and %p imply %s",
                function, KindName(request.kind), request.destination, request.source,
                KindName(found));
  }
  for (const auto& [end, device, which] :
       {std::tuple{destination, request.destination_device, "destination"},
        std::tuple{source, request.source_device, "source"}}) {
    if (device != -1 && end.device != device) {
      return Fail(orErrorInvalidCopy,
                  "%s: the call gives the device of the %s as %d, but that memory is on device %d",
                  function, which, device, end.device);
    }
  }

  void* to = arena.Translate(request.destination);
  const void* from = arena.Translate(request.source);
  const orCopyDescription description{request.size, found, source.type, destination.type};
  const bool pageable_source = source.type == orMemoryTypeUnmanaged;
  const bool pageable_destination = destination.type == orMemoryTypeUnmanaged;
  const char* const refused_because = pageable_source || pageable_destination ? kPageable : nullptr;
  if (!wait && pageable_source && !pageable_destination &&
      request.size <= StagedTransfer::kMaxBytes) {
    StagedTransfer staged;
    staged.destination = to;
    staged.size = request.size;
    std::memcpy(staged.bytes, from, request.size);
    Work work = WorkOf(staged, "copy", /*is_short=*/true);
    work.size = offsetof(StagedTransfer, bytes) + request.size;
    work.copy = &description;
    work.refused_because = refused_because;
    return submission.Submit(work);
  }
  const Transfer transfer{to, from, request.size};
  Work work = WorkOf(transfer, "copy", request.size <= kShortCopy);
  work.copy = &description;
  work.synchronous = wait || pageable_source || pageable_destination;
  work.refused_because = wait ? kWaits : refused_because;
  return submission.Submit(work);
}

orError_t Set(void* pointer, int value, size_t size, const Submission& submission, bool wait) {
  const char* const function = submission.function();
  if (size == 0) {
    return orSuccess;
  }
  Endpoint destination;
  if (const orError_t error = Locate(function, "destination", pointer, size, &destination);
      error != orSuccess) {
    return error;
  }
  if (destination.type == orMemoryTypeUnmanaged) {
    return Fail(orErrorInvalidDevicePointer,
                "%s: %p is neither device memory nor pinned host memory; use memset", function,
                pointer);
  }
  const Fill fill{arena.Translate(pointer), size, value};
  const orCopyDescription description{size, orMemcpyDefault, orMemoryTypeUnmanaged,
                                      destination.type};
  Work work = WorkOf(fill, "fill", size <= kShortCopy);
  work.copy = &description;
  work.synchronous = wait;
  work.refused_because = wait ? kWaits : nullptr;
  return submission.Submit(work);
}

// Runs a copy or fill on the default stream and waits until it is done.
template <class Operation>
orError_t RunSynchronously(const char* function, Operation operation) {
  Submission submission(function);
  StreamQueue queue;
  if (const orError_t error = submission.Enter(nullptr); error != orSuccess) {
    return error;
  }
  if (const orError_t error = submission.QueueUncaptured(kWaits, &queue); error != orSuccess) {
    return error;
  }
  if (const orError_t error = CheckSafeInCapture(function); error != orSuccess) {
    return error;
  }
  const orError_t error = operation(submission);
  return error != orSuccess ? error : ReportKernelError(queue.stream()->sink());
}

// Checks the device indices of orMemcpyPeer.
orError_t CheckDevices(const Submission& submission, int dst_device, int src_device) {
  const orError_t error = CheckDevice(submission.function(), dst_device);
  return error != orSuccess ? error : CheckDevice(submission.function(), src_device);
}

}  // namespace

extern "C" {

OPENREG_API orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind) {
  return RunSynchronously("orMemcpy", [&](const Submission& submission) {
    return Copy({dst, src, size, kind, -1, -1}, submission, true);
  });
}

OPENREG_API orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind,
                                    orStream_t handle) {
  Submission submission("orMemcpyAsync");
  if (const orError_t error = submission.Enter(handle); error != orSuccess) {
    return error;
  }
  return Copy({dst, src, size, kind, -1, -1}, submission, false);
}

OPENREG_API orError_t orMemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                                   size_t size) {
  return RunSynchronously("orMemcpyPeer", [&](const Submission& submission) {
    if (const orError_t error = CheckDevices(submission, dst_device, src_device);
        error != orSuccess) {
      return error;
    }
    const CopyRequest request{dst, src, size, orMemcpyDeviceToDevice, dst_device, src_device};
    return Copy(request, submission, true);
  });
}

OPENREG_API orError_t orMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                        size_t size, orStream_t handle) {
  Submission submission("orMemcpyPeerAsync");
  if (const orError_t error = submission.Enter(handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = CheckDevices(submission, dst_device, src_device);
      error != orSuccess) {
    return error;
  }
  const CopyRequest request{dst, src, size, orMemcpyDeviceToDevice, dst_device, src_device};
  return Copy(request, submission, false);
}

OPENREG_API orError_t orMemset(void* pointer, int value, size_t size) {
  return RunSynchronously("orMemset", [&](const Submission& submission) {
    return Set(pointer, value, size, submission, true);
  });
}

OPENREG_API orError_t orMemsetAsync(void* pointer, int value, size_t size, orStream_t handle) {
  Submission submission("orMemsetAsync");
  if (const orError_t error = submission.Enter(handle); error != orSuccess) {
    return error;
  }
  return Set(pointer, value, size, submission, false);
}

}  // extern "C"
}  // namespace openreg::device
