// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the device hooks that torch calls outside operators. They have no state. They are
// registered when the library is loaded, for the lifetime of the process. Any thread may call them.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/error.h"
#include "runtime/c10/generator.h"
#include "runtime/c10/host_allocator.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }

  bool isAvailable() const override { return device_count() > 0; }

  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device >= 0 && device < device_count() && is_initialized();
  }

  void init() const override { initialize(); }

  c10::DeviceIndex deviceCount() const override { return device_count(); }

  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }

  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }

  // Always switches the device. torch's "maybe" is for backends that switch only if the device
  // already has a context; this device has no contexts.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }

  at::Device getDeviceFromPtr(void* pointer) const override {
    orPointerAttributes attributes;
    OPENREG_CHECK(orPointerGetAttributes(&attributes, pointer));
    TORCH_CHECK(attributes.type == orMemoryTypeDevice, "the pointer ", pointer,
                " does not point to memory of device openreg");
    return {kOpenRegType, static_cast<c10::DeviceIndex>(attributes.device)};
  }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }

  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<GeneratorImpl>(resolve_device(device));
  }

  // Changes the size of a storage, for resize_ and UntypedStorage.resize_. Copies the old bytes on
  // the current stream of the storage's device.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    const DeviceScope scope(resolve_device(storage.device().index()));
    c10::DataPtr grown = device_allocator()->allocate(size);
    const size_t kept = std::min(size, impl->nbytes());
    if (kept > 0) {
      OPENREG_CHECK(orMemcpyAsync(grown.mutable_get(), impl->data(), kept, orMemcpyDeviceToDevice,
                                  current_native_stream(storage.device().index())));
    }
    impl->set_data_ptr_noswap(std::move(grown));
    impl->set_nbytes(size);
  }
};

// Registers the hooks. torch keeps the pointer forever and never deletes the object.
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(std::make_unique<Hooks>().release());
  return true;
}();

}  // namespace
}  // namespace openreg
