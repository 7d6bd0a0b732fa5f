// SPDX-License-Identifier: BSD-3-Clause
//
// Implements copies and fills. Each of them is a stream command, which translates its addresses
// when it runs. A copy to or from pageable memory returns only when it is done.
#include <cstring>
#include <optional>

#include "runtime/minimal/driver.h"
#include "runtime/minimal/memory.h"
#include "runtime/minimal/stream.h"

namespace openreg::minimal {
namespace {

// The memory at one end of a copy.
struct End {
  orMemoryType type = orMemoryTypeUnmanaged;
  int device = -1;
};

orError_t Locate(const char* function, const void* pointer, size_t size, End* end) {
  if (pointer == nullptr) {
    return FailNull(function, "the pointer");
  }
  const std::optional<Block> block = FindBlock(pointer);
  if (!block && IsDeviceAddress(pointer)) {
    return Fail(orErrorInvalidDevicePointer,
                "%s: %p is a device address that is not inside any live allocation", function,
                pointer);
  }
  const bool inside = block && block->Contains(pointer, size);
  if ((block && !inside && !block->registered) || size > PTRDIFF_MAX) {
    return Fail(orErrorInvalidCopy, "%s: %p + %zu bytes exceeds its allocation", function, pointer,
                size);
  }
  if (inside) {  // a range that is only partly registered counts as pageable
    *end = {block->type, block->device};
  }
  return orSuccess;
}

struct Request {
  const char* function;
  void* dst;
  const void* src;
  size_t size;
  orMemcpyKind kind;
  bool peer = false;  // whether the caller specified the devices
  int dst_device = -1;
  int src_device = -1;
};

orError_t Copy(const Request& request, orStream_t handle) {
  const auto& [function, dst, src, size, kind, peer, dst_device, src_device] = request;
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(EnterWork(function));
  RETURN_IF_ERROR(Streams::Get().Find(function, handle, &stream));
  if (kind < orMemcpyHostToHost || kind > orMemcpyDefault) {
    return Fail(orErrorInvalidValue, "%s: kind %d is not an orMemcpyKind", function, kind);
  }
  if (peer) {
    RETURN_IF_ERROR(CheckDevice(function, dst_device));
    RETURN_IF_ERROR(CheckDevice(function, src_device));
  }
  if (size == 0) {
    return orSuccess;
  }
  End to, from;
  RETURN_IF_ERROR(Locate(function, dst, size, &to));
  RETURN_IF_ERROR(Locate(function, src, size, &from));
  const int found =
      (to.type == orMemoryTypeDevice ? 1 : 0) + (from.type == orMemoryTypeDevice ? 2 : 0);
  if (kind != orMemcpyDefault && kind != found) {
    return Fail(orErrorInvalidCopy, "%s: the kind is %d, but the pointers imply %d", function, kind,
                found);
  }
  if (peer && (to.device != dst_device || from.device != src_device)) {
    return Fail(
        orErrorInvalidCopy,
        "%s: the destination is on device %d and the source on device %d, but the call names "
        "devices %d and %d",
        function, to.device, from.device, dst_device, src_device);
  }
  const auto run = [dst = request.dst, src = request.src, size = request.size](std::string*) {
    std::memmove(Translate(dst), Translate(src), size);
    return orSuccess;
  };
  uint64_t position = 0;
  RETURN_IF_ERROR(stream->Queue(function, {.run = run}, &position));
  const bool pageable = to.type == orMemoryTypeUnmanaged || from.type == orMemoryTypeUnmanaged;
  return pageable ? stream->Wait(function, position) : orSuccess;
}

orError_t Set(const char* function, void* pointer, int value, size_t size, orStream_t handle) {
  std::shared_ptr<Stream> stream;
  RETURN_IF_ERROR(EnterWork(function));
  RETURN_IF_ERROR(Streams::Get().Find(function, handle, &stream));
  if (size == 0) {
    return orSuccess;
  }
  End end;
  RETURN_IF_ERROR(Locate(function, pointer, size, &end));
  if (end.type == orMemoryTypeUnmanaged) {
    return Fail(orErrorInvalidDevicePointer,
                "%s: %p is neither device memory nor pinned host memory; use memset", function,
                pointer);
  }
  return stream->Queue(function, {.run = [=](std::string*) {
                         std::memset(Translate(pointer), value, size);
                         return orSuccess;
                       }});
}

// Completes a synchronous function: waits for the default stream and returns the stream's error.
orError_t Finish(orError_t queued) {
  return queued == orSuccess ? orStreamSynchronize(nullptr) : queued;
}

}  // namespace

extern "C" {

OPENREG_API orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind) {
  return Finish(Copy({__func__, dst, src, size, kind}, nullptr));
}

OPENREG_API orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind,
                                    orStream_t stream) {
  return Copy({__func__, dst, src, size, kind}, stream);
}

OPENREG_API orError_t orMemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                                   size_t size) {
  return Finish(Copy(
      {__func__, dst, src, size, orMemcpyDeviceToDevice, true, dst_device, src_device}, nullptr));
}

OPENREG_API orError_t orMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                        size_t size, orStream_t stream) {
  return Copy({__func__, dst, src, size, orMemcpyDeviceToDevice, true, dst_device, src_device},
              stream);
}

OPENREG_API orError_t orMemset(void* pointer, int value, size_t size) {
  return Finish(Set(__func__, pointer, value, size, nullptr));
}

OPENREG_API orError_t orMemsetAsync(void* pointer, int value, size_t size, orStream_t stream) {
  return Set(__func__, pointer, value, size, stream);
}

}  // extern "C"
}  // namespace openreg::minimal
