// SPDX-License-Identifier: BSD-3-Clause
//
// DeviceSource - allocates one device's memory with orMalloc and orFree.
//
// It does not change the calling thread's current device. Only one thread at a time may call a
// source.
#ifndef RUNTIME_ALLOCATOR_DEVICE_SOURCE_H_
#define RUNTIME_ALLOCATOR_DEVICE_SOURCE_H_

#include <cstddef>
#include <string>

#include "runtime/allocator/source.h"

namespace openreg::allocator {

class OPENREG_API DeviceSource : public Source {
 public:
  explicit DeviceSource(int device) : device_(device) {}

  void* allocate(size_t size, std::string* reason) override;
  void free(void* segment, size_t size) override;
  void trim() override;
  Room room() override;

 private:
  const int device_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_DEVICE_SOURCE_H_
