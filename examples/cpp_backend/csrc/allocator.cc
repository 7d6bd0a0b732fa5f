// SPDX-License-Identifier: BSD-3-Clause
//
// Device memory. allocate() uses the calling thread's current device. The deleter may run on any
// thread, with or without the GIL, and during the shutdown of the interpreter. Therefore it must
// not acquire the GIL, throw, or wait for a thread that might need the GIL.
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "device.h"

namespace acme {
namespace {

std::array<std::atomic<int64_t>, kDevices> used{};

// The context of a DataPtr. It owns the memory and is freed together with it.
struct Block {
  void* pointer;
  int64_t bytes;
  c10::DeviceIndex device;
};

void free_block(void* context) {
  auto* const block = static_cast<Block*>(context);
  used[static_cast<size_t>(block->device)] -= block->bytes;
  std::free(block->pointer);  // driver: free the memory
  delete block;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kType, current_device);
    if (bytes == 0) {
      return {nullptr, device};  // the device must be correct even without memory
    }
    void* const pointer = std::malloc(bytes);  // driver: allocate memory
    TORCH_CHECK_WITH(OutOfMemoryError, pointer != nullptr, "acme: out of memory: ", bytes,
                     " bytes");
    used[static_cast<size_t>(device.index())] += static_cast<int64_t>(bytes);
    return {pointer, new Block{pointer, static_cast<int64_t>(bytes), device.index()}, &free_block,
            device};
  }
  // There is no raw_allocate(), because it passes the pointer itself to the deleter, but this
  // deleter needs a context.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);  // driver: copy device memory
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  // Does nothing, because kernels are synchronous. A caching allocator must keep the memory until
  // the stream has used it.
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = used[static_cast<size_t>(resolve(device))];
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
};

// Never destroyed, because tensors in static storage may outlive any other static object.
Allocator& instance() {
  static auto* const instance = new Allocator;
  return *instance;
}

const bool registered = [] {
  c10::SetAllocator(kType, &instance());
  return true;
}();

}  // namespace

c10::Allocator* allocator() { return &instance(); }

}  // namespace acme
