// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/device_source.h"

#include "runtime/allocator/device_scope.h"

namespace openreg::allocator {

void* DeviceSource::allocate(size_t size, std::string* reason) {
  const DeviceScope scope(device_);
  void* segment = nullptr;
  // Allocate even while a capture forbids allocations. This is safe, because the memory of a
  // capture itself comes from a private pool, which outlives the capture.
  orStreamCaptureMode mode = orStreamCaptureModeRelaxed;
  check(orThreadExchangeStreamCaptureMode(&mode));
  const orError_t error = orMalloc(&segment, size);
  check(orThreadExchangeStreamCaptureMode(&mode));
  if (error == orErrorOutOfMemory || error == orErrorSystem) {
    *reason = driver_text(error);
    (void)orGetLastError();  // the caller handles the error
    return nullptr;
  }
  check(error);
  return segment;
}

void DeviceSource::free(void* segment, size_t /*size*/) {
  const DeviceScope scope(device_);
  check(orFree(segment));
}

void DeviceSource::trim() {
  const DeviceScope scope(device_);
  check(orMemTrim(nullptr));
}

Source::Room DeviceSource::room() {
  const DeviceScope scope(device_);
  Room room;
  check(orMemGetInfo(&room.free, &room.total));
  return room;
}

}  // namespace openreg::allocator
