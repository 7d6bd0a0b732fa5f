// SPDX-License-Identifier: BSD-3-Clause
//
// The hooks with which torch queries devices, generators and pinned memory, and resizes storages.
// They are stateless, and torch keeps one instance until the process ends. Any thread may use them.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device.h"

namespace acme {
namespace {

// A device generator that uses the CPU's algorithm. A device with its own kernels for random
// numbers stores a seed and an offset instead (Philox), and advances the offset at each launch.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex index) {
    device_ = c10::Device(kType, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return device < kDevices; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static const std::array<at::Generator, kDevices> generators{getNewGenerator(0),
                                                                getNewGenerator(1)};
    return generators[static_cast<size_t>(resolve(device))];
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(resolve(device));
  }

  // The device has no pinned memory, so pin_memory() copies to ordinary host memory.
  bool isPinnedPtr(const void* /*pointer*/) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CPU);
  }

  // Resizes a storage for resize_ and UntypedStorage.resize_. The old contents are kept.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    const c10::DeviceIndex previous = exchange_device(storage.device().index());
    c10::DataPtr grown = allocator()->allocate(bytes);
    exchange_device(previous);
    if (const size_t kept = std::min(bytes, impl->nbytes()); kept > 0) {
      std::memcpy(grown.mutable_get(), impl->data(), kept);  // driver: copy device memory
    }
    impl->set_data_ptr_noswap(std::move(grown));
    impl->set_nbytes(bytes);
  }
};

// Never destroyed, because torch keeps the pointer forever.
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace acme
