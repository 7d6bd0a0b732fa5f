// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

class CopyTest : public DeviceTest {
 protected:
  // Returns bytes whose values depend on their positions.
  static std::vector<unsigned char> Pattern(size_t size, unsigned seed = 1) {
    std::vector<unsigned char> bytes(size);
    for (size_t index = 0; index < size; ++index) {
      bytes[index] = static_cast<unsigned char>((index * 31 + seed * 17) ^ (index >> 8));
    }
    return bytes;
  }
  std::vector<unsigned char> Read(const void* device, size_t size) {
    std::vector<unsigned char> bytes(size);
    EXPECT_OK(orMemcpy(bytes.data(), device, size, orMemcpyDeviceToHost));
    return bytes;
  }
};

TEST_F(CopyTest, CopiesInEveryDirectionAndSize) {
  for (size_t size : {size_t{1}, size_t{384}, size_t{385}, size_t{16385}, size_t{3} << 20}) {
    const auto bytes = Pattern(size);
    auto* first = Allocate<unsigned char>(size);
    auto* second = Allocate<unsigned char>(size);
    ASSERT_OK(orMemcpy(first, bytes.data(), size, orMemcpyHostToDevice));
    ASSERT_OK(orMemcpy(second, first, size, orMemcpyDeviceToDevice));
    EXPECT_EQ(Read(second, size), bytes) << size;
    std::vector<unsigned char> host(size);
    ASSERT_OK(orMemcpy(host.data(), bytes.data(), size, orMemcpyHostToHost));
    EXPECT_EQ(host, bytes);
    EXPECT_OK(orMemset(second, 0xab, size));
    EXPECT_EQ(Read(second, size), std::vector<unsigned char>(size, 0xab));
    EXPECT_OK(orMemcpy(second, bytes.data(), size, orMemcpyDefault));
    EXPECT_EQ(Read(second, size), bytes);
  }
}

TEST_F(CopyTest, AsyncCopiesKeepTheOrderOfTheirStream) {
  constexpr size_t kSize = size_t{1} << 20;
  const orStream_t stream = CreateStream();
  void* pinned_in = nullptr;
  void* pinned_out = nullptr;
  ASSERT_OK(orMallocHost(&pinned_in, kSize));
  ASSERT_OK(orMallocHost(&pinned_out, kSize));
  const auto bytes = Pattern(kSize);
  std::memcpy(pinned_in, bytes.data(), kSize);
  auto* first = Allocate<unsigned char>(kSize);
  auto* second = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemsetAsync(first, 0, kSize, stream));
  ASSERT_OK(orMemcpyAsync(first, pinned_in, kSize, orMemcpyHostToDevice, stream));
  ASSERT_OK(orMemcpyAsync(second, first, kSize, orMemcpyDeviceToDevice, stream));
  ASSERT_OK(orMemsetAsync(first, 0, kSize, stream));
  ASSERT_OK(orMemcpyAsync(pinned_out, second, kSize, orMemcpyDeviceToHost, stream));
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(std::memcmp(pinned_out, bytes.data(), kSize), 0);
  EXPECT_OK(orFreeHost(pinned_in));
  EXPECT_OK(orFreeHost(pinned_out));
}

TEST_F(CopyTest, PinnedMemoryIsReadLaterAndPageableMemoryImmediately) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  int* pinned = nullptr;
  ASSERT_OK(orMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
  int pageable = 1;
  *pinned = 1;
  int* from_pinned = Allocate<int>(1);
  int* from_pageable = Allocate<int>(1);
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  ASSERT_OK(orMemcpyAsync(from_pinned, pinned, sizeof(int), orMemcpyHostToDevice, stream));
  ASSERT_OK(orMemcpyAsync(from_pageable, &pageable, sizeof(int), orMemcpyHostToDevice, stream));
  *pinned = 2;
  pageable = 2;
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  gate.Open();
  ASSERT_OK(orStreamSynchronize(stream));
  int read[2] = {};
  ASSERT_OK(orMemcpy(&read[0], from_pinned, sizeof(int), orMemcpyDeviceToHost));
  ASSERT_OK(orMemcpy(&read[1], from_pageable, sizeof(int), orMemcpyDeviceToHost));
  EXPECT_EQ(read[0], 2);
  EXPECT_EQ(read[1], 1);
  EXPECT_OK(orFreeHost(pinned));
}

TEST_F(CopyTest, ALargePageableCopyCompletesWithinTheCall) {
  QueueLaunches();
  constexpr size_t kSize = 100000;
  const orStream_t stream = CreateStream();
  auto bytes = Pattern(kSize);
  auto* memory = Allocate<unsigned char>(kSize);
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.Open();
  });
  ASSERT_OK(orMemcpyAsync(memory, bytes.data(), kSize, orMemcpyHostToDevice, stream));
  std::fill(bytes.begin(), bytes.end(), 0);
  std::vector<unsigned char> out(kSize);
  ASSERT_OK(orMemcpyAsync(out.data(), memory, kSize, orMemcpyDeviceToHost, stream));
  EXPECT_EQ(out, Pattern(kSize));
  opener.join();
}

TEST_F(CopyTest, SyncCopiesFollowTheDefaultStreamAndReportItsError) {
  QueueLaunches();
  int* view = nullptr;
  int* memory = Allocate<int>(1, &view);
  ASSERT_OK(orLaunchKernel(nullptr, [view] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    *view = 42;
  }));
  int read = 0;
  ASSERT_OK(orMemcpy(&read, memory, sizeof(int), orMemcpyDeviceToHost));
  EXPECT_EQ(read, 42);
  ASSERT_OK(orLaunchKernel(
      nullptr, [] { (void)orKernelFail(orErrorUnknown, "seen by the copy", nullptr, nullptr); }));
  EXPECT_FAILS(orMemcpy(&read, memory, sizeof(int), orMemcpyDeviceToHost), orErrorUnknown,
               "seen by the copy");
  EXPECT_OK(orMemset(memory, 0, sizeof(int)));
}

TEST_F(CopyTest, OverlappingRangesAreCopiedLikeMemmove) {
  constexpr size_t kSize = 10000;
  const auto bytes = Pattern(kSize);
  for (int shift : {-777, 777}) {
    auto* memory = Allocate<unsigned char>(kSize + 2000);
    ASSERT_OK(orMemcpy(memory + 1000, bytes.data(), kSize, orMemcpyHostToDevice));
    ASSERT_OK(orMemcpy(memory + 1000 + shift, memory + 1000, kSize, orMemcpyDeviceToDevice));
    EXPECT_EQ(Read(memory + 1000 + shift, kSize), bytes);
  }
}

TEST_F(CopyTest, PeerCopiesCheckTheirDevices) {
  constexpr size_t kSize = 5000;
  const auto bytes = Pattern(kSize);
  auto* source = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemcpy(source, bytes.data(), kSize, orMemcpyHostToDevice));
  ASSERT_OK(orSetDevice(other()));
  auto* destination = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemcpyPeer(destination, other(), source, 0, kSize));
  EXPECT_EQ(Read(destination, kSize), bytes);
  ASSERT_OK(orMemset(destination, 0, kSize));
  const orStream_t stream = CreateStream();
  ASSERT_OK(orMemcpyPeerAsync(destination, other(), source, 0, kSize, stream));
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(Read(destination, kSize), bytes);
  ASSERT_OK(orMemcpy(destination, source, kSize, orMemcpyDeviceToDevice));
  EXPECT_FAILS(orMemcpyPeer(destination, count_, source, 0, kSize), orErrorInvalidDevice,
               "is out of range");
  EXPECT_FAILS(orMemcpyPeerAsync(destination, other(), source, -1, kSize, stream),
               orErrorInvalidDevice, "is out of range");
  unsigned char host[16] = {};
  EXPECT_FAILS(orMemcpyPeer(destination, other(), host, 0, sizeof(host)), orErrorInvalidCopy,
               "orMemcpyHostToDevice");
  if (count_ > 1) {
    EXPECT_FAILS(orMemcpyPeer(destination, 0, source, 0, kSize), orErrorInvalidCopy,
                 "gives the device of the destination as 0");
  }
}

TEST_F(CopyTest, CopiesOfZeroBytesSucceed) {
  EXPECT_OK(orMemcpy(nullptr, nullptr, 0, orMemcpyHostToDevice));
  EXPECT_OK(orMemcpyAsync(nullptr, nullptr, 0, orMemcpyDefault, nullptr));
  EXPECT_OK(orMemset(nullptr, 0, 0));
  EXPECT_OK(orMemsetAsync(nullptr, 0, 0, nullptr));
  EXPECT_OK(orMemcpyPeer(nullptr, 0, nullptr, 0, 0));
  EXPECT_FAILS(orMemcpy(nullptr, nullptr, 0, static_cast<orMemcpyKind>(7)), orErrorInvalidValue,
               "is not an orMemcpyKind");
}

TEST_F(CopyTest, RangesThatExceedTheirAllocationAreRefused) {
  auto* memory = Allocate<char>(5000);
  std::vector<char> host(10000);
  EXPECT_FAILS(orMemcpy(memory, host.data(), 5001, orMemcpyHostToDevice), orErrorInvalidCopy,
               "exceeds its allocation");
  EXPECT_FAILS(orMemcpy(host.data(), memory + 4999, 2, orMemcpyDeviceToHost), orErrorInvalidCopy,
               "exceeds its allocation");
  EXPECT_FAILS(orMemcpy(memory, memory, 5001, orMemcpyDeviceToDevice), orErrorInvalidCopy,
               "exceeds its allocation");
  EXPECT_FAILS(orMemset(memory + 1, 0, 5000), orErrorInvalidCopy, "exceeds its allocation");
  const size_t huge = std::numeric_limits<size_t>::max();
  EXPECT_FAILS(orMemcpy(memory, host.data(), huge, orMemcpyHostToDevice), orErrorInvalidCopy,
               "exceeds its allocation");
  EXPECT_FAILS(orMemcpy(host.data(), host.data(), huge, orMemcpyHostToHost), orErrorInvalidCopy,
               "not a range of host memory");
  EXPECT_FAILS(orMemcpy(memory + 5000, host.data(), 1, orMemcpyHostToDevice),
               orErrorInvalidDevicePointer, "not inside any live allocation");
  void* pinned = nullptr;
  ASSERT_OK(orMallocHost(&pinned, 10));
  EXPECT_FAILS(orMemcpy(memory, pinned, 11, orMemcpyHostToDevice), orErrorInvalidCopy,
               "exceeds its pinned allocation");
  EXPECT_OK(orFreeHost(pinned));
  ASSERT_OK(orFree(memory));
  EXPECT_FAILS(orMemcpy(host.data(), memory, 1, orMemcpyDeviceToHost), orErrorInvalidDevicePointer,
               "not inside any live allocation");
}

TEST_F(CopyTest, KindAndPointersMustAgree) {
  auto* memory = Allocate<char>(100);
  char host[100] = {};
  for (orMemcpyKind kind : {orMemcpyHostToHost, orMemcpyDeviceToHost, orMemcpyDeviceToDevice}) {
    EXPECT_FAILS(orMemcpy(memory, host, 100, kind), orErrorInvalidCopy, "but the pointers");
  }
  EXPECT_FAILS(orMemcpyAsync(host, memory, 100, orMemcpyHostToDevice, nullptr), orErrorInvalidCopy,
               "imply orMemcpyDeviceToHost");
  EXPECT_FAILS(orMemcpy(nullptr, memory, 100, orMemcpyDefault), orErrorInvalidValue,
               "the destination is null");
  EXPECT_FAILS(orMemcpy(memory, nullptr, 100, orMemcpyDefault), orErrorInvalidValue,
               "the source is null");
  EXPECT_FAILS(orMemset(host, 0, 100), orErrorInvalidDevicePointer, "use memset");
  EXPECT_FAILS(orMemset(nullptr, 0, 100), orErrorInvalidValue, "the destination is null");
}

TEST_F(CopyTest, APartlyRegisteredRangeIsTreatedAsPageable) {
  QueueLaunches();
  auto bytes = Pattern(20000);
  ASSERT_OK(orHostRegister(bytes.data(), 10000));
  auto* memory = Allocate<unsigned char>(20000);
  ASSERT_OK(orMemcpyAsync(memory, bytes.data(), 20000, orMemcpyHostToDevice, nullptr));
  std::fill(bytes.begin(), bytes.end(), 0);
  EXPECT_EQ(Read(memory, 20000), Pattern(20000));
  EXPECT_OK(orHostUnregister(bytes.data()));
}

}  // namespace
}  // namespace openreg::device
