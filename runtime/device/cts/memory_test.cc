// SPDX-License-Identifier: BSD-3-Clause
//
// Tests device memory and pointer attributes (tier 1), and pinned memory (tier 2).
#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

class Tier1MemoryTest : public DriverTest {
 protected:
  static size_t FreeBytes() {
    size_t free_bytes = 0, total = 0;
    EXPECT_OK(orMemGetInfo(&free_bytes, &total));
    EXPECT_LE(free_bytes, total);
    return free_bytes;
  }
};
using Tier2MemoryTest = Tier2Test;

TEST_F(Tier1MemoryTest, FreeBytesCountAllocationsInGranules) {
  orDeviceProperties properties;
  ASSERT_OK(orGetDeviceProperties(&properties, 0));
  const size_t granule = properties.allocation_granularity;
  const size_t before = FreeBytes();
  void* small = nullptr;
  void* large = nullptr;
  ASSERT_OK(orMalloc(&small, 1));
  ASSERT_OK(orMalloc(&large, 3 * granule + 1));
  EXPECT_NE(small, large);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % std::min<size_t>(granule, 256), 0u);
  EXPECT_EQ(before - FreeBytes(), 5 * granule);
  EXPECT_OK(orFree(small));
  EXPECT_OK(orFree(large));
  EXPECT_EQ(FreeBytes(), before);
  size_t bytes = 0;
  EXPECT_FAILS(orMemGetInfo(nullptr, &bytes), orErrorInvalidValue);
  EXPECT_FAILS(orMemGetInfo(&bytes, nullptr), orErrorInvalidValue);
}

TEST_F(Tier1MemoryTest, ZeroBytesAreANullPointer) {
  void* pointer = &pointer;
  EXPECT_OK(orMalloc(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_OK(orFree(nullptr));
}

TEST_F(Tier1MemoryTest, OversizedRequestsAreOutOfMemory) {
  size_t free_bytes = 0, total = 0;
  ASSERT_OK(orMemGetInfo(&free_bytes, &total));
  void* pointer = &pointer;
  for (size_t size : {total + 1, std::numeric_limits<size_t>::max(),
                      std::numeric_limits<size_t>::max() - 4095, size_t{1} << 63}) {
    EXPECT_FAILS(orMalloc(&pointer, size), orErrorOutOfMemory);
    EXPECT_EQ(pointer, nullptr);
  }
  EXPECT_FAILS(orMalloc(nullptr, 1), orErrorInvalidValue);
}

TEST_F(Tier1MemoryTest, ExhaustedMemoryCanBeUsedAgain) {
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    orError_t error = orSuccess;
    const size_t size = FreeBytes() / 4;
    while (error == orSuccess) {
      void* block = nullptr;
      error = orMalloc(&block, size);
      if (error == orSuccess) {
        blocks.push_back(block);
      }
      ASSERT_LE(blocks.size(), 4u);
    }
    EXPECT_FAILS(error, orErrorOutOfMemory);
    EXPECT_GE(blocks.size(), 3u);
    for (void* block : blocks) {
      ASSERT_OK(orFree(block));
    }
  }
}

TEST_F(Tier1MemoryTest, InvalidPointersAreNotFreed) {
  char* memory = Allocate<char>(10000);
  int host = 0;
  EXPECT_FAILS(orFree(memory + 1), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orFree(memory + 9999), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orFree(&host), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orFree(reinterpret_cast<void*>(1)), orErrorInvalidDevicePointer);
  EXPECT_OK(orFree(memory));
  EXPECT_FAILS(orFree(memory), orErrorInvalidDevicePointer);
}

TEST_F(Tier1MemoryTest, AnyDeviceMayBeCurrentWhenMemoryIsFreed) {
  void* memory = nullptr;
  ASSERT_OK(orMalloc(&memory, 100));
  ASSERT_OK(orSetDevice(other()));
  EXPECT_OK(orFree(memory));
}

TEST_F(Tier1MemoryTest, AttributesDescribeEveryKindOfPointer) {
  orPointerAttributes attributes;
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    char* memory = Allocate<char>(5000);
    for (size_t inside : {size_t{0}, size_t{1}, size_t{4999}}) {
      ASSERT_OK(orPointerGetAttributes(&attributes, memory + inside));
      EXPECT_EQ(attributes.type, orMemoryTypeDevice);
      EXPECT_EQ(attributes.device, device);
      EXPECT_EQ(attributes.pointer, memory + inside);
      EXPECT_EQ(attributes.base, memory);
      EXPECT_EQ(attributes.size, 5000u);
      EXPECT_EQ(attributes.imported, 0);
    }
    ASSERT_OK(orFree(memory));
    EXPECT_FAILS(orPointerGetAttributes(&attributes, memory), orErrorInvalidDevicePointer);
  }
  for (const void* host : {static_cast<const void*>(&attributes), static_cast<const void*>(nullptr),
                           reinterpret_cast<const void*>(UINTPTR_MAX)}) {
    ASSERT_OK(orPointerGetAttributes(&attributes, host));
    EXPECT_EQ(attributes.type, orMemoryTypeUnmanaged);
    EXPECT_EQ(attributes.device, -1);
    EXPECT_EQ(attributes.pointer, host);
    EXPECT_EQ(attributes.base, nullptr);
    EXPECT_EQ(attributes.size, 0u);
  }
  EXPECT_FAILS(orPointerGetAttributes(nullptr, &attributes), orErrorInvalidValue);
}

TEST_F(Tier1MemoryTest, TrimKeepsLiveMemory) {
  constexpr size_t kSize = size_t{8} << 20;
  auto* freed = Allocate<unsigned char>(kSize);
  auto* kept = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemset(freed, 1, kSize));
  ASSERT_OK(orMemset(kept, 2, kSize));
  EXPECT_OK(orFree(freed));
  size_t released = 1;
  EXPECT_OK(orMemTrim(&released));
  EXPECT_EQ(Read(kept, kSize), std::vector<unsigned char>(kSize, 2));
  EXPECT_OK(orMemTrim(&released));
  EXPECT_EQ(released, 0u);
  EXPECT_OK(orMemTrim(nullptr));
}

TEST_F(Tier1MemoryTest, RandomAllocationsNeverOverlapOrLeak) {
  std::mt19937 random(20260101);
  const size_t before = FreeBytes();
  std::vector<std::pair<uintptr_t, uintptr_t>> blocks;
  std::set<std::pair<uintptr_t, uintptr_t>> ranges;
  for (int step = 0; step < 2000; ++step) {
    if (blocks.empty() || random() % 5 < 3) {
      const size_t size = size_t{1} << (random() % 24);
      void* pointer = nullptr;
      const orError_t error = orMalloc(&pointer, size);
      if (error == orErrorOutOfMemory) {
        continue;
      }
      ASSERT_OK(error);
      const auto base = reinterpret_cast<uintptr_t>(pointer);
      const auto next = ranges.lower_bound({base, 0});
      EXPECT_TRUE(next == ranges.end() || base + size <= next->first);
      EXPECT_TRUE(next == ranges.begin() || std::prev(next)->second <= base);
      blocks.emplace_back(base, base + size);
      ranges.insert(blocks.back());
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      ranges.erase(blocks.back());
      ASSERT_OK(orFree(reinterpret_cast<void*>(blocks.back().first)));
      blocks.pop_back();
    }
  }
  for (const auto& [base, end] : blocks) {
    ASSERT_OK(orFree(reinterpret_cast<void*>(base)));
  }
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(Tier2MemoryTest, TheHostReadsAndWritesPinnedMemory) {
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

TEST_F(Tier2MemoryTest, KernelsSeePinnedMemoryAtTheSameAddress) {
  void* pinned = nullptr;
  ASSERT_OK(orMallocHost(&pinned, 1000 * sizeof(uint32_t)));
  ASSERT_OK(TestedDriver().launch_fill(nullptr, pinned, 1000, 9));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(static_cast<uint32_t*>(pinned)[999], 9u);
  EXPECT_OK(orFreeHost(pinned));
}

TEST_F(Tier2MemoryTest, BadRequestsForPinnedMemoryAreRefused) {
  void* pointer = &pointer;
  EXPECT_OK(orMallocHost(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_OK(orFreeHost(nullptr));
  EXPECT_FAILS(orMallocHost(nullptr, 1), orErrorInvalidValue);
  EXPECT_FAILS(orMallocHost(&pointer, std::numeric_limits<size_t>::max()), orErrorOutOfMemory);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(Tier2MemoryTest, PinnedMemoryIsFreedOnceByItsStart) {
  void* pointer = nullptr;
  ASSERT_OK(orMallocHost(&pointer, 100));
  EXPECT_FAILS(orFreeHost(static_cast<char*>(pointer) + 1), orErrorInvalidValue);
  EXPECT_FAILS(orFree(pointer), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orHostUnregister(pointer), orErrorNotRegistered);
  EXPECT_OK(orFreeHost(pointer));
  EXPECT_FAILS(orFreeHost(pointer), orErrorInvalidValue);
  EXPECT_FAILS(orFreeHost(Allocate<char>(1)), orErrorInvalidValue);
}

TEST_F(Tier2MemoryTest, RegisteredMemoryIsPinnedUntilItIsUnregistered) {
  std::vector<char> memory(1000);
  ASSERT_OK(orHostRegister(memory.data(), memory.size()));
  orPointerAttributes attributes;
  ASSERT_OK(orPointerGetAttributes(&attributes, memory.data() + 999));
  EXPECT_EQ(attributes.type, orMemoryTypeHost);
  EXPECT_EQ(attributes.base, memory.data());
  EXPECT_FAILS(orHostRegister(memory.data() + 10, 1), orErrorAlreadyRegistered);
  EXPECT_FAILS(orHostRegister(memory.data() - 1, 2), orErrorAlreadyRegistered);
  EXPECT_FAILS(orFreeHost(memory.data()), orErrorInvalidValue);
  EXPECT_FAILS(orHostUnregister(memory.data() + 1), orErrorNotRegistered);
  EXPECT_OK(orHostUnregister(memory.data()));
  EXPECT_FAILS(orHostUnregister(memory.data()), orErrorNotRegistered);
  ASSERT_OK(orPointerGetAttributes(&attributes, memory.data()));
  EXPECT_EQ(attributes.type, orMemoryTypeUnmanaged);
}

TEST_F(Tier2MemoryTest, OnlyHostMemoryCanBeRegistered) {
  char byte = 0;
  EXPECT_FAILS(orHostRegister(nullptr, 1), orErrorInvalidValue);
  EXPECT_FAILS(orHostRegister(&byte, 0), orErrorInvalidValue);
  EXPECT_FAILS(orHostRegister(&byte, std::numeric_limits<size_t>::max()), orErrorInvalidValue);
  EXPECT_FAILS(orHostRegister(Allocate<char>(100), 100), orErrorInvalidValue);
}

}  // namespace
}  // namespace openreg::cts
