// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/allocation.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

using AllocationTest = DeviceTest;

TEST_F(AllocationTest, MemoryIsAlignedDistinctAndCounted) {
  size_t free_before = 0, total = 0;
  ASSERT_OK(orMemGetInfo(&free_before, &total));
  EXPECT_EQ(total, size_t{256} << 20);
  void* small = nullptr;
  void* large = nullptr;
  ASSERT_OK(orMalloc(&small, 1));
  ASSERT_OK(orMalloc(&large, (size_t{2} << 20) + 1));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 4096, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % (size_t{2} << 20), 0u);
  size_t free_bytes = 0;
  ASSERT_OK(orMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_before - free_bytes, 4096 + (size_t{2} << 20) + 4096);
  EXPECT_OK(orFree(small));
  EXPECT_OK(orFree(large));
  ASSERT_OK(orMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, free_before);
}

TEST_F(AllocationTest, ZeroBytesAreANullPointer) {
  void* pointer = &pointer;
  EXPECT_OK(orMalloc(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_OK(orFree(nullptr));
}

TEST_F(AllocationTest, OversizedRequestsFailWithTheFigures) {
  void* pointer = &pointer;
  EXPECT_FAILS(orMalloc(&pointer, (size_t{256} << 20) + 1), orErrorOutOfMemory,
               "256 MiB of 256 MiB are free, and the largest free range has 256 MiB");
  EXPECT_EQ(pointer, nullptr);
  for (size_t size : {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - 4095,
                      size_t{1} << 63, size_t{1} << 47}) {
    EXPECT_FAILS(orMalloc(&pointer, size), orErrorOutOfMemory, std::to_string(size) + " bytes");
  }
  EXPECT_FAILS(orMalloc(nullptr, 1), orErrorInvalidValue, "pointer is null");
}

TEST_F(AllocationTest, TheWholeCapacityCanBeReused) {
  for (int round = 0; round < 3; ++round) {
    void* all = nullptr;
    ASSERT_OK(orMalloc(&all, size_t{256} << 20));
    void* more = nullptr;
    EXPECT_FAILS(orMalloc(&more, 1), orErrorOutOfMemory, "0 bytes of 256 MiB are free");
    ASSERT_OK(orFree(all));
  }
}

TEST_F(AllocationTest, InvalidPointersAreNotFreed) {
  char* memory = Allocate<char>(10000);
  EXPECT_FAILS(orFree(memory + 1), orErrorInvalidDevicePointer,
               "points 1 bytes into the allocation");
  EXPECT_FAILS(orFree(memory + 9999), orErrorInvalidDevicePointer, "start address");
  EXPECT_FAILS(orFree(memory + 10000), orErrorInvalidDevicePointer,
               "not inside any live allocation");
  int host = 0;
  EXPECT_FAILS(orFree(&host), orErrorInvalidDevicePointer, "not a device address");
  EXPECT_FAILS(orFree(reinterpret_cast<void*>(1)), orErrorInvalidDevicePointer,
               "not a device address");
  void* view = nullptr;
  ASSERT_OK(orGetKernelPointer(&view, memory));
  EXPECT_FAILS(orFree(view), orErrorInvalidDevicePointer, "not a device address");
  EXPECT_OK(orFree(memory));
  EXPECT_FAILS(orFree(memory), orErrorInvalidDevicePointer, "that has not been freed");
}

TEST_F(AllocationTest, AnyDeviceMayBeCurrentWhenMemoryIsFreed) {
  void* memory = Allocate<char>(100);
  ASSERT_OK(orSetDevice(other()));
  EXPECT_OK(orFree(memory));
}

TEST_F(AllocationTest, KernelsSeeMemoryAtAConstantOffset) {
  orAddressWindow window;
  ASSERT_OK(orGetAddressWindow(&window));
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    int* view = nullptr;
    int* memory = Allocate<int>(1000, &view);
    const auto address = reinterpret_cast<uintptr_t>(memory);
    EXPECT_LT(address - window.base, window.size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view),
              address + static_cast<uintptr_t>(window.kernel_offset));
    void* inside = nullptr;
    EXPECT_OK(orGetKernelPointer(&inside, memory + 999));
    EXPECT_EQ(inside, view + 999);
    view[999] = 7;
    int read = 0;
    EXPECT_OK(orMemcpy(&read, memory + 999, sizeof(read), orMemcpyDeviceToHost));
    EXPECT_EQ(read, 7);
  }
  int host = 0;
  void* same = nullptr;
  EXPECT_OK(orGetKernelPointer(&same, &host));
  EXPECT_EQ(same, &host);
  EXPECT_FAILS(orGetKernelPointer(&same, reinterpret_cast<void*>(window.base + window.size - 1)),
               orErrorInvalidDevicePointer, "not inside any live allocation");
  EXPECT_FAILS(orGetKernelPointer(nullptr, &host), orErrorInvalidValue, "kernel_pointer is null");
  EXPECT_FAILS(orGetAddressWindow(nullptr), orErrorInvalidValue, "window is null");
}

TEST_F(AllocationTest, AttributesDescribeEveryKindOfPointer) {
  orPointerAttributes attributes;
  char* memory = Allocate<char>(5000);
  for (size_t inside : {size_t{0}, size_t{1}, size_t{4999}}) {
    ASSERT_OK(orPointerGetAttributes(&attributes, memory + inside));
    EXPECT_EQ(attributes.type, orMemoryTypeDevice);
    EXPECT_EQ(attributes.device, 0);
    EXPECT_EQ(attributes.pointer, memory + inside);
    EXPECT_EQ(attributes.base, memory);
    EXPECT_EQ(attributes.size, 5000u);
    EXPECT_EQ(attributes.imported, 0);
  }
  EXPECT_FAILS(orPointerGetAttributes(&attributes, memory + 5000), orErrorInvalidDevicePointer,
               "not inside any live allocation");
  for (const void* host : {static_cast<const void*>(&attributes), static_cast<const void*>(nullptr),
                           reinterpret_cast<const void*>(UINTPTR_MAX)}) {
    ASSERT_OK(orPointerGetAttributes(&attributes, host));
    EXPECT_EQ(attributes.type, orMemoryTypeUnmanaged);
    EXPECT_EQ(attributes.device, -1);
    EXPECT_EQ(attributes.pointer, host);
    EXPECT_EQ(attributes.base, nullptr);
    EXPECT_EQ(attributes.size, 0u);
  }
  EXPECT_FAILS(orPointerGetAttributes(nullptr, memory), orErrorInvalidValue, "attributes is null");
}

TEST_F(AllocationTest, TrimReturnsOnlyPagesOfFreeMemory) {
  constexpr size_t kSize = size_t{8} << 20;
  char* view = nullptr;
  char* freed = Allocate<char>(kSize, &view);
  std::memset(view, 1, kSize);
  char* kept_view = nullptr;
  (void)Allocate<char>(kSize, &kept_view);
  std::memset(kept_view, 2, kSize);
  EXPECT_OK(orFree(freed));
  size_t released = 0;
  EXPECT_OK(orMemTrim(&released));
  EXPECT_EQ(released, kSize);
  EXPECT_EQ(kept_view[0], 2);
  EXPECT_EQ(kept_view[kSize - 1], 2);
  EXPECT_OK(orMemTrim(&released));
  EXPECT_EQ(released, 0u);
  EXPECT_OK(orMemTrim(nullptr));
  char* again_view = nullptr;
  (void)Allocate<char>(kSize, &again_view);
  EXPECT_EQ(again_view[0], 0);
}

TEST_F(AllocationTest, InfoRefusesNull) {
  size_t bytes = 0;
  EXPECT_FAILS(orMemGetInfo(nullptr, &bytes), orErrorInvalidValue, "free_bytes must not be null");
  EXPECT_FAILS(orMemGetInfo(&bytes, nullptr), orErrorInvalidValue, "total_bytes must not be null");
}

TEST_F(AllocationTest, RandomAllocationsNeverOverlapOrLeak) {
  std::mt19937 random(20260101);
  struct Block {
    char* base;
    size_t size;
  };
  std::vector<Block> blocks;
  std::set<std::pair<uintptr_t, uintptr_t>> ranges;
  for (int step = 0; step < 3000; ++step) {
    if (blocks.empty() || random() % 5 < 3) {
      const size_t size = size_t{1} << (random() % 24);
      void* pointer = nullptr;
      const orError_t error = orMalloc(&pointer, size);
      if (error == orErrorOutOfMemory) {
        continue;
      }
      ASSERT_EQ(error, orSuccess);
      const auto base = reinterpret_cast<uintptr_t>(pointer);
      const auto next = ranges.lower_bound({base, 0});
      EXPECT_TRUE(next == ranges.end() || base + size <= next->first);
      EXPECT_TRUE(next == ranges.begin() || std::prev(next)->second <= base);
      ranges.insert({base, base + size});
      blocks.push_back({static_cast<char*>(pointer), size});
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto base = reinterpret_cast<uintptr_t>(blocks.back().base);
      ranges.erase({base, base + blocks.back().size});
      ASSERT_OK(orFree(blocks.back().base));
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) {
    ASSERT_OK(orFree(block.base));
  }
  void* all = nullptr;
  EXPECT_OK(orMalloc(&all, size_t{256} << 20));  // fits only if no fragments remain
}

}  // namespace
}  // namespace openreg::device
