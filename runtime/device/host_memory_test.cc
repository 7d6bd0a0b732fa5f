// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/host_memory.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

using HostMemoryTest = DeviceTest;

TEST_F(HostMemoryTest, TheHostReadsAndWritesPinnedMemory) {
  for (size_t size : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
    void* pointer = nullptr;
    ASSERT_OK(orMallocHost(&pointer, size));
    std::memset(pointer, 0x5a, size);
    orPointerAttributes attributes;
    ASSERT_OK(orPointerGetAttributes(&attributes, static_cast<char*>(pointer) + size - 1));
    EXPECT_EQ(attributes.type, orMemoryTypeHost);
    EXPECT_EQ(attributes.base, pointer);
    EXPECT_EQ(attributes.size, size);
    EXPECT_EQ(attributes.device, -1);
    EXPECT_OK(orFreeHost(pointer));
    ASSERT_OK(orPointerGetAttributes(&attributes, pointer));
    EXPECT_EQ(attributes.type, orMemoryTypeUnmanaged);
  }
}

TEST_F(HostMemoryTest, BadRequestsAreRefused) {
  void* pointer = &pointer;
  EXPECT_OK(orMallocHost(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_OK(orFreeHost(nullptr));
  EXPECT_FAILS(orMallocHost(nullptr, 1), orErrorInvalidValue, "pointer is null");
  EXPECT_FAILS(orMallocHost(&pointer, std::numeric_limits<size_t>::max()), orErrorOutOfMemory,
               "the size exceeds the address space");
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(HostMemoryTest, PinnedMemoryIsFreedOnceByItsStart) {
  char* pointer = nullptr;
  ASSERT_OK(orMallocHost(reinterpret_cast<void**>(&pointer), 100));
  EXPECT_FAILS(orFreeHost(pointer + 1), orErrorInvalidValue, "was not returned by orMallocHost");
  EXPECT_FAILS(orFree(pointer), orErrorInvalidDevicePointer, "not a device address");
  EXPECT_FAILS(orHostUnregister(pointer), orErrorNotRegistered, "not the start");
  EXPECT_OK(orFreeHost(pointer));
  EXPECT_FAILS(orFreeHost(pointer), orErrorInvalidValue, "already freed");
  EXPECT_FAILS(orFreeHost(Allocate<char>(1)), orErrorInvalidValue,
               "was not returned by orMallocHost");
}

TEST_F(HostMemoryTest, RegisteredMemoryIsPinnedUntilItIsUnregistered) {
  std::vector<char> memory(1000);
  ASSERT_OK(orHostRegister(memory.data(), memory.size()));
  orPointerAttributes attributes;
  ASSERT_OK(orPointerGetAttributes(&attributes, memory.data() + 999));
  EXPECT_EQ(attributes.type, orMemoryTypeHost);
  EXPECT_EQ(attributes.base, memory.data());
  EXPECT_FAILS(orHostRegister(memory.data() + 10, 1), orErrorAlreadyRegistered, "already pinned");
  EXPECT_FAILS(orHostRegister(memory.data() - 1, 2), orErrorAlreadyRegistered, "already pinned");
  EXPECT_FAILS(orFreeHost(memory.data()), orErrorInvalidValue, "was not returned by orMallocHost");
  EXPECT_FAILS(orHostUnregister(memory.data() + 1), orErrorNotRegistered, "not the start");
  EXPECT_OK(orHostUnregister(memory.data()));
  EXPECT_FAILS(orHostUnregister(memory.data()), orErrorNotRegistered, "not the start");
  ASSERT_OK(orPointerGetAttributes(&attributes, memory.data()));
  EXPECT_EQ(attributes.type, orMemoryTypeUnmanaged);
}

TEST_F(HostMemoryTest, OnlyHostMemoryCanBeRegistered) {
  char byte = 0;
  EXPECT_FAILS(orHostRegister(nullptr, 1), orErrorInvalidValue, "not a valid range of host memory");
  EXPECT_FAILS(orHostRegister(&byte, 0), orErrorInvalidValue, "not a valid range of host memory");
  EXPECT_FAILS(orHostRegister(&byte, std::numeric_limits<size_t>::max()), orErrorInvalidValue,
               "not a valid range of host memory");
  char* view = nullptr;
  char* device = Allocate<char>(100, &view);
  EXPECT_FAILS(orHostRegister(device, 100), orErrorInvalidValue, "is device memory");
  EXPECT_FAILS(orHostRegister(view, 100), orErrorInvalidValue, "is device memory");
}

}  // namespace
}  // namespace openreg::device
