// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for device memory, pinned memory and kernel pointers.
#include "runtime/device/activity.h"
#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/capture.h"
#include "runtime/device/error.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process.h"
#include "runtime/device/thread.h"

namespace openreg::device {
extern "C" {

OPENREG_API orError_t orMalloc(void** pointer, size_t size) {
  if (const orError_t error = EnterDevice("orMalloc"); error != orSuccess) {
    return error;
  }
  if (const orError_t error = CheckSafeInCapture("orMalloc"); error != orSuccess) {
    return error;
  }
  if (pointer == nullptr) {
    return Fail(orErrorInvalidValue, "orMalloc: pointer is null: pass the address of a pointer");
  }
  CallActivity call("orMalloc");
  call.SetBytes(size);
  return Allocations::Get().Allocate(thread_state.device, size, pointer);
}

OPENREG_API orError_t orFree(void* pointer) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orFree"); error != orSuccess) {
    return error;
  }
  CallActivity call("orFree");
  call.SetObject(pointer);
  return pointer == nullptr ? orSuccess : Allocations::Get().Free(pointer);
}

OPENREG_API orError_t orMemTrim(size_t* released) {
  if (released != nullptr) {
    *released = 0;
  }
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orMemTrim"); error != orSuccess) {
    return error;
  }
  return IsReady() ? Allocations::Get().Trim(thread_state.device, released) : orSuccess;
}

OPENREG_API orError_t orMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const orError_t error = EnterQuery("orMemGetInfo"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          CheckNotNull("orMemGetInfo", {{"free_bytes", free_bytes}, {"total_bytes", total_bytes}});
      error != orSuccess) {
    return error;
  }
  Allocations::Get().Info(thread_state.device, free_bytes, total_bytes);
  return orSuccess;
}

OPENREG_API orError_t orGetKernelPointer(void** kernel_pointer, const void* pointer) {
  if (const orError_t error = EnterQuery("orGetKernelPointer"); error != orSuccess) {
    return error;
  }
  if (kernel_pointer == nullptr) {
    return Fail(orErrorInvalidValue,
                "orGetKernelPointer: kernel_pointer is null: pass the address of a pointer");
  }
  Allocation allocation;
  if (arena.Contains(pointer) && !Allocations::Get().Find(pointer, &allocation)) {
    *kernel_pointer = nullptr;
    return Fail(orErrorInvalidDevicePointer,
                "orGetKernelPointer: %p is a device address that is not inside any live allocation",
                pointer);
  }
  *kernel_pointer = arena.Translate(pointer);
  return orSuccess;
}

OPENREG_API orError_t orCheckKernelPointer(const void* pointer) {
  if (const orError_t error = EnterQuery("orCheckKernelPointer"); error != orSuccess) {
    return error;
  }
  if (pointer == nullptr || arena.Contains(pointer)) {
    return orSuccess;
  }
  return Fail(orErrorInvalidDevicePointer,
              "launch of a kernel with the host pointer %p: a kernel must not write to host memory "
              "or keep its address; pass device memory",
              pointer);
}

OPENREG_API orError_t orGetAddressWindow(orAddressWindow* window) {
  if (const orError_t error = EnterQuery("orGetAddressWindow"); error != orSuccess) {
    return error;
  }
  if (window == nullptr) {
    return Fail(orErrorInvalidValue,
                "orGetAddressWindow: window is null: pass the address of an orAddressWindow");
  }
  *window = {arena.half().base, arena.half().size, arena.offset()};
  return orSuccess;
}

OPENREG_API orError_t orMallocHost(void** pointer, size_t size) {
  if (const orError_t error = EnterDevice("orMallocHost"); error != orSuccess) {
    return error;
  }
  if (pointer == nullptr) {
    return Fail(orErrorInvalidValue,
                "orMallocHost: pointer is null: pass the address of a pointer");
  }
  CallActivity call("orMallocHost");
  call.SetBytes(size);
  return HostMemory::Get().Allocate(size, pointer);
}

OPENREG_API orError_t orFreeHost(void* pointer) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orFreeHost"); error != orSuccess) {
    return error;
  }
  CallActivity call("orFreeHost");
  call.SetObject(pointer);
  return pointer == nullptr ? orSuccess : HostMemory::Get().Free(pointer);
}

OPENREG_API orError_t orHostRegister(void* pointer, size_t size) {
  if (const orError_t error = EnterDevice("orHostRegister"); error != orSuccess) {
    return error;
  }
  return HostMemory::Get().Register(pointer, size);
}

OPENREG_API orError_t orHostUnregister(void* pointer) {
  if (InForkedChild()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orHostUnregister"); error != orSuccess) {
    return error;
  }
  return HostMemory::Get().Unregister(pointer);
}

OPENREG_API orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* pointer) {
  if (const orError_t error = EnterQuery("orPointerGetAttributes"); error != orSuccess) {
    return error;
  }
  if (attributes == nullptr) {
    return Fail(
        orErrorInvalidValue,
        "orPointerGetAttributes: attributes is null: pass the address of an orPointerAttributes");
  }
  *attributes = {orMemoryTypeUnmanaged, -1, const_cast<void*>(pointer), nullptr, 0, 0};
  if (arena.Contains(pointer)) {
    Allocation found;
    if (!Allocations::Get().Find(pointer, &found)) {
      return Fail(
          orErrorInvalidDevicePointer,
          "orPointerGetAttributes: %p is a device address that is not inside any live allocation",
          pointer);
    }
    attributes->type = orMemoryTypeDevice;
    attributes->device = found.device;
    attributes->base = reinterpret_cast<void*>(found.base);
    attributes->size = found.size;
    attributes->imported = found.import != nullptr;
    return orSuccess;
  }
  HostBlock block;
  if (HostMemory::Get().Find(pointer, &block)) {
    attributes->type = orMemoryTypeHost;
    attributes->base = reinterpret_cast<void*>(block.base);
    attributes->size = block.size;
  }
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
