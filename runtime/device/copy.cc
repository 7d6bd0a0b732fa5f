// SPDX-License-Identifier: BSD-3-Clause
//
// Copies and fills. Each is a kernel of the device itself, so its order is that of its stream. A
// copy that has to be done when the call returns runs on the calling thread if the stream is idle.
#include <cinttypes>
#include <cstring>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/device.h"
#include "runtime/device/error.h"
#include "runtime/device/graph.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"
#include "runtime/device/thread.h"

namespace openreg::device {
namespace {

// As cheap as a kernel that may run inline.
constexpr size_t kShortCopy = 16 * 1024;

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

// A small pageable source travels with the command, so that the host may change it at once.
struct StagedTransfer {
  static constexpr size_t kMost = 384;
  void* destination;
  size_t size;
  unsigned char bytes[kMost];
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

// One end of a copy.
struct End {
  orMemoryType type;
  int device;  // -1 for host memory
};

orError_t Locate(const char* function, const char* which, const void* pointer, size_t size,
                 End* end) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (pointer == nullptr) {
    return Fail(orErrorInvalidValue, "%s: the %s is null", function, which);
  }
  if (!arena.Contains(pointer)) {
    const Window& half = arena.half();
    if (address + size < address || (address < half.base && address + size > half.base)) {
      return Fail(orErrorInvalidCopy, "%s: the %s %p + %zu bytes is not a range of host memory",
                  function, which, pointer, size);
    }
    HostBlock block;
    const bool pinned = HostMemory::Get().Find(pointer, &block);
    if (pinned && size > block.size - (address - block.base)) {
      if (block.owned) {
        return Fail(orErrorInvalidCopy,
                    "%s: the %s %p + %zu bytes leaves its pinned allocation %p of %zu bytes",
                    function, which, pointer, size, reinterpret_cast<void*>(block.base),
                    block.size);
      }
      *end = {orMemoryTypeUnmanaged, -1};  // only a part of this host memory was registered
      return orSuccess;
    }
    *end = {pinned ? orMemoryTypeHost : orMemoryTypeUnmanaged, -1};
    return orSuccess;
  }
  Allocation allocation;
  if (!Allocations::Get().Find(pointer, &allocation)) {
    return Fail(orErrorInvalidDevicePointer,
                "%s: the %s %p is a device address where no allocation lives now", function, which,
                pointer);
  }
  if (size > allocation.size - (address - allocation.base)) {
    return Fail(orErrorInvalidCopy,
                "%s: the %s %p + %zu bytes leaves its allocation %p of %zu bytes on device %d",
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

// Queues a command of the device itself, or runs it inline if it is short and the stream idle.
orError_t Submit(Stream* stream, uint64_t expected, orKernelFunction_t kernel,
                 const void* arguments, size_t size, const char* name, bool is_short) {
  const uint32_t now = mode.load(std::memory_order_relaxed);
  if ((now & kCapturing) != 0) [[unlikely]] {
    CapturedCommand command{};
    command.kind = Command::kCopy;
    command.place = is_short ? Command::kAnywhere : Command::kOnWorker;
    command.runs_inline = is_short;
    command.name = name;
    command.kernel = kernel;
    command.arguments = arguments;
    command.size = size;
    if (const auto captured = Captures::Get().Add(name, stream, command)) {
      return *captured;
    }
  }
  if ((now & kBlocking) != 0) {
    return RunInOrder(stream, expected, kernel, arguments, size, name);
  }
  if (is_short && (now & kInjecting) == 0 &&
      stream->TryInline(expected, kernel, arguments, size, name, &stream->sink())) {
    return orSuccess;
  }
  return stream->Enqueue(expected, nullptr, [&](Command& command) {
    command.kind = Command::kCopy;
    command.place = is_short ? Command::kAnywhere : Command::kOnWorker;
    command.name = name;
    command.kernel = kernel;
    command.sink = &stream->sink();
    std::memcpy(command.arguments, arguments, size);
  });
}

struct CopyRequest {
  const char* function;
  void* destination;
  const void* source;
  size_t size;
  orMemcpyKind kind;
  int destination_device;  // -1: any
  int source_device;
};

// `wait`: the copy has to be done when the call returns.
orError_t Copy(const CopyRequest& request, Stream* stream, uint64_t expected, bool wait) {
  const char* function = request.function;
  if (KindName(request.kind) == nullptr) {
    return Fail(orErrorInvalidValue, "%s: kind %d is none of orMemcpyKind", function,
                static_cast<int>(request.kind));
  }
  if (request.size == 0) {
    return orSuccess;
  }
  End destination, source;
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
    return Fail(orErrorInvalidCopy, "%s: the kind is %s, but the pointers %p and %p say %s",
                function, KindName(request.kind), request.destination, request.source,
                KindName(found));
  }
  for (const auto& [end, device, which] :
       {std::tuple{destination, request.destination_device, "destination"},
        std::tuple{source, request.source_device, "source"}}) {
    if (device != -1 && end.device != device) {
      return Fail(orErrorInvalidCopy, "%s: the %s is said to be on device %d, but is on %s %d",
                  function, which, device, end.device == -1 ? "the host:" : "device", end.device);
    }
  }

  void* to = arena.Translate(request.destination);
  const void* from = arena.Translate(request.source);
  const bool pageable_source = source.type == orMemoryTypeUnmanaged;
  const bool pageable_destination = destination.type == orMemoryTypeUnmanaged;
  if ((pageable_source || pageable_destination) && Capturing()) [[unlikely]] {
    if (const auto refused = Captures::Get().RefuseStream(
            function, stream,
            "and memory of the host that is not pinned need not exist at a replay: use pinned "
            "memory, or copy before or after the capture")) {
      return *refused;
    }
  }
  if (!wait && pageable_source && !pageable_destination && request.size <= StagedTransfer::kMost) {
    StagedTransfer staged;
    staged.destination = to;
    staged.size = request.size;
    std::memcpy(staged.bytes, from, request.size);
    return Submit(stream, expected, StagedTransfer::Run, &staged,
                  offsetof(StagedTransfer, bytes) + request.size, "copy", /*is_short=*/true);
  }
  const Transfer transfer{to, from, request.size};
  if (wait || pageable_source || pageable_destination) {
    return RunInOrder(stream, expected, Transfer::Run, &transfer, sizeof(transfer), "copy");
  }
  return Submit(stream, expected, Transfer::Run, &transfer, sizeof(transfer), "copy",
                request.size <= kShortCopy);
}

orError_t Set(const char* function, void* pointer, int value, size_t size, Stream* stream,
              uint64_t expected, bool wait) {
  if (size == 0) {
    return orSuccess;
  }
  End destination;
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
  if (wait) {
    return RunInOrder(stream, expected, Fill::Run, &fill, sizeof(fill), "fill");
  }
  return Submit(stream, expected, Fill::Run, &fill, sizeof(fill), "fill", size <= kShortCopy);
}

// A synchronous one runs on the default stream, and waits.
orError_t EnterSynchronous(const char* function, Stream** stream, uint64_t* expected) {
  constexpr WhenCaptured kWaits{"and this call waits: use its asynchronous form"};
  if (const orError_t error = EnterStream(function, nullptr, kWaits, stream, expected);
      error != orSuccess) {
    return error;
  }
  if (Capturing()) [[unlikely]] {
    if (const auto refused = Captures::Get().RefuseUnsafe(function)) {
      return *refused;
    }
  }
  return orSuccess;
}

// A synchronous copy or fill ends like a synchronization of the default stream it ran on.
orError_t Finish(Stream* stream, orError_t error) {
  return error != orSuccess ? error : ReportKernelError(stream->sink());
}

}  // namespace
}  // namespace openreg::device

using openreg::device::CheckDevice;
using openreg::device::Copy;
using openreg::device::CopyRequest;
using openreg::device::EnterStream;
using openreg::device::EnterSynchronous;
using openreg::device::Finish;
using openreg::device::kAllowedInCapture;
using openreg::device::Stream;

orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterSynchronous("orMemcpy", &stream, &expected);
      error != orSuccess) {
    return error;
  }
  return Finish(stream, Copy({"orMemcpy", dst, src, size, kind, -1, -1}, stream, expected, true));
}

orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind,
                        orStream_t handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orMemcpyAsync", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  return Copy({"orMemcpyAsync", dst, src, size, kind, -1, -1}, stream, expected, false);
}

orError_t orMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t size) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterSynchronous("orMemcpyPeer", &stream, &expected);
      error != orSuccess) {
    return error;
  }
  for (const int device : {dst_device, src_device}) {
    if (const orError_t error = CheckDevice("orMemcpyPeer", device); error != orSuccess) {
      return error;
    }
  }
  const CopyRequest request{"orMemcpyPeer",         dst,        src,       size,
                            orMemcpyDeviceToDevice, dst_device, src_device};
  return Finish(stream, Copy(request, stream, expected, true));
}

orError_t orMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t size,
                            orStream_t handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orMemcpyPeerAsync", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  for (const int device : {dst_device, src_device}) {
    if (const orError_t error = CheckDevice("orMemcpyPeerAsync", device); error != orSuccess) {
      return error;
    }
  }
  const CopyRequest request{"orMemcpyPeerAsync",    dst,        src,       size,
                            orMemcpyDeviceToDevice, dst_device, src_device};
  return Copy(request, stream, expected, false);
}

orError_t orMemset(void* pointer, int value, size_t size) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error = EnterSynchronous("orMemset", &stream, &expected);
      error != orSuccess) {
    return error;
  }
  return Finish(stream,
                openreg::device::Set("orMemset", pointer, value, size, stream, expected, true));
}

orError_t orMemsetAsync(void* pointer, int value, size_t size, orStream_t handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orMemsetAsync", handle, kAllowedInCapture, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  return openreg::device::Set("orMemsetAsync", pointer, value, size, stream, expected, false);
}
