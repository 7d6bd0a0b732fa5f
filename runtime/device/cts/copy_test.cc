// SPDX-License-Identifier: BSD-3-Clause
//
// Tests copies and fills (tier 1), and their order in streams and pinned memory (tier 2).
#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

using Tier1CopyTest = DriverTest;
using Tier2CopyTest = Tier2Test;

TEST_F(Tier1CopyTest, CopiesInEveryDirectionAndSize) {
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

TEST_F(Tier1CopyTest, AsyncCopiesOfPageableMemoryMayReuseItAtOnce) {
  constexpr size_t kSize = 100000;
  auto bytes = Pattern(kSize);
  auto* memory = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemcpyAsync(memory, bytes.data(), kSize, orMemcpyHostToDevice, nullptr));
  std::fill(bytes.begin(), bytes.end(), 0);
  std::vector<unsigned char> out(kSize);
  ASSERT_OK(orMemcpyAsync(out.data(), memory, kSize, orMemcpyDeviceToHost, nullptr));
  EXPECT_EQ(out, Pattern(kSize));
  ASSERT_OK(orMemsetAsync(memory, 3, kSize, nullptr));
  EXPECT_EQ(Read(memory, kSize), std::vector<unsigned char>(kSize, 3));
}

TEST_F(Tier1CopyTest, SyncCopiesFollowTheDefaultStreamAndReturnItsErrorOnce) {
  constexpr size_t kCount = 1 << 20;
  auto* memory = Allocate<uint32_t>(kCount);
  ASSERT_OK(TestedDriver().launch_fill(nullptr, memory, kCount, 42));
  EXPECT_EQ(ReadWord(memory + kCount - 1), 42u);
  const orError_t launched = TestedDriver().launch_failing(nullptr);
  if (launched != orSuccess) {
    // With launch blocking, the launch returns the error.
    EXPECT_FAILS(launched, orErrorLaunchFailure);
    return;
  }
  uint32_t read = 0;
  EXPECT_FAILS(orMemcpy(&read, memory, sizeof(read), orMemcpyDeviceToHost), orErrorLaunchFailure);
  EXPECT_OK(orMemset(memory, 0, sizeof(read)));
}

TEST_F(Tier1CopyTest, OverlappingRangesAreCopiedLikeMemmove) {
  constexpr size_t kSize = 10000;
  const auto bytes = Pattern(kSize);
  for (int shift : {-777, 777}) {
    auto* memory = Allocate<unsigned char>(kSize + 2000);
    ASSERT_OK(orMemcpy(memory + 1000, bytes.data(), kSize, orMemcpyHostToDevice));
    ASSERT_OK(orMemcpy(memory + 1000 + shift, memory + 1000, kSize, orMemcpyDeviceToDevice));
    EXPECT_EQ(Read(memory + 1000 + shift, kSize), bytes);
  }
}

TEST_F(Tier1CopyTest, PeerCopiesCheckTheirDevices) {
  constexpr size_t kSize = 5000;
  const auto bytes = Pattern(kSize);
  auto* source = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemcpy(source, bytes.data(), kSize, orMemcpyHostToDevice));
  ASSERT_OK(orSetDevice(other()));
  auto* destination = Allocate<unsigned char>(kSize);
  ASSERT_OK(orMemcpyPeer(destination, other(), source, 0, kSize));
  EXPECT_EQ(Read(destination, kSize), bytes);
  ASSERT_OK(orMemset(destination, 0, kSize));
  ASSERT_OK(orMemcpyPeerAsync(destination, other(), source, 0, kSize, nullptr));
  EXPECT_EQ(Read(destination, kSize), bytes);
  ASSERT_OK(orMemcpy(destination, source, kSize, orMemcpyDeviceToDevice));
  EXPECT_FAILS(orMemcpyPeer(destination, count_, source, 0, kSize), orErrorInvalidDevice);
  EXPECT_FAILS(orMemcpyPeerAsync(destination, other(), source, -1, kSize, nullptr),
               orErrorInvalidDevice);
  unsigned char host[16] = {};
  EXPECT_FAILS(orMemcpyPeer(destination, other(), host, 0, sizeof(host)), orErrorInvalidCopy);
  if (count_ > 1) {
    EXPECT_FAILS(orMemcpyPeer(destination, 0, source, 0, kSize), orErrorInvalidCopy);
  }
}

TEST_F(Tier1CopyTest, CopiesOfZeroBytesSucceed) {
  EXPECT_OK(orMemcpy(nullptr, nullptr, 0, orMemcpyHostToDevice));
  EXPECT_OK(orMemcpyAsync(nullptr, nullptr, 0, orMemcpyDefault, nullptr));
  EXPECT_OK(orMemset(nullptr, 0, 0));
  EXPECT_OK(orMemsetAsync(nullptr, 0, 0, nullptr));
  EXPECT_OK(orMemcpyPeer(nullptr, 0, nullptr, 0, 0));
  EXPECT_FAILS(orMemcpy(nullptr, nullptr, 0, static_cast<orMemcpyKind>(7)), orErrorInvalidValue);
}

TEST_F(Tier1CopyTest, RangesThatExceedTheirAllocationAreRefused) {
  auto* memory = Allocate<char>(5000);
  std::vector<char> host(10000);
  EXPECT_FAILS(orMemcpy(memory, host.data(), 5001, orMemcpyHostToDevice), orErrorInvalidCopy);
  EXPECT_FAILS(orMemcpy(host.data(), memory + 4999, 2, orMemcpyDeviceToHost), orErrorInvalidCopy);
  EXPECT_FAILS(orMemcpy(memory, memory, 5001, orMemcpyDeviceToDevice), orErrorInvalidCopy);
  EXPECT_FAILS(orMemset(memory + 1, 0, 5000), orErrorInvalidCopy);
  const size_t huge = std::numeric_limits<size_t>::max();
  EXPECT_FAILS(orMemcpy(memory, host.data(), huge, orMemcpyHostToDevice), orErrorInvalidCopy);
  EXPECT_FAILS(orMemcpy(host.data(), host.data(), huge, orMemcpyHostToHost), orErrorInvalidCopy);
  ASSERT_OK(orFree(memory));
  EXPECT_FAILS(orMemcpy(host.data(), memory, 1, orMemcpyDeviceToHost), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orMemset(memory, 0, 1), orErrorInvalidDevicePointer);
}

TEST_F(Tier1CopyTest, KindAndPointersMustAgree) {
  auto* memory = Allocate<char>(100);
  char host[100] = {};
  for (orMemcpyKind kind : {orMemcpyHostToHost, orMemcpyDeviceToHost, orMemcpyDeviceToDevice}) {
    EXPECT_FAILS(orMemcpy(memory, host, 100, kind), orErrorInvalidCopy);
  }
  EXPECT_FAILS(orMemcpyAsync(host, memory, 100, orMemcpyHostToDevice, nullptr), orErrorInvalidCopy);
  EXPECT_FAILS(orMemcpy(nullptr, memory, 100, orMemcpyDefault), orErrorInvalidValue);
  EXPECT_FAILS(orMemcpy(memory, nullptr, 100, orMemcpyDefault), orErrorInvalidValue);
  EXPECT_FAILS(orMemset(host, 0, 100), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orMemset(nullptr, 0, 100), orErrorInvalidValue);
}

TEST_F(Tier2CopyTest, AsyncCopiesKeepTheOrderOfTheirStream) {
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

TEST_F(Tier2CopyTest, PinnedMemoryIsReadWhenTheCopyRuns) {
  const orStream_t stream = CreateStream();
  void* memory = nullptr;
  ASSERT_OK(orMallocHost(&memory, sizeof(uint32_t)));
  auto* pinned = static_cast<uint32_t*>(memory);
  *pinned = 1;
  auto* device = Allocate<uint32_t>(1);
  Gate gate;
  ASSERT_OK(gate.Queue(stream));
  ASSERT_OK(orMemcpyAsync(device, pinned, sizeof(uint32_t), orMemcpyHostToDevice, stream));
  *pinned = 2;
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  gate.Open();
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_EQ(ReadWord(device), 2u);
  EXPECT_FAILS(orMemcpy(device, pinned, 5, orMemcpyHostToDevice), orErrorInvalidCopy);
  EXPECT_OK(orFreeHost(pinned));
}

TEST_F(Tier2CopyTest, APageableCopyFollowsTheWorkOfItsStream) {
  constexpr size_t kSize = 100000;
  const orStream_t stream = CreateStream();
  auto bytes = Pattern(kSize);
  auto* memory = Allocate<unsigned char>(kSize);
  Gate gate;
  ASSERT_OK(gate.Queue(stream));
  const std::jthread opener([&] {
    Sleep(5);
    gate.Open();
  });
  ASSERT_OK(orMemcpyAsync(memory, bytes.data(), kSize, orMemcpyHostToDevice, stream));
  std::fill(bytes.begin(), bytes.end(), 0);
  std::vector<unsigned char> out(kSize);
  ASSERT_OK(orMemcpyAsync(out.data(), memory, kSize, orMemcpyDeviceToHost, stream));
  EXPECT_EQ(out, Pattern(kSize));
}

TEST_F(Tier2CopyTest, APartlyRegisteredRangeIsTreatedAsPageable) {
  auto bytes = Pattern(20000);
  ASSERT_OK(orHostRegister(bytes.data(), 10000));
  auto* memory = Allocate<unsigned char>(20000);
  ASSERT_OK(orMemcpyAsync(memory, bytes.data(), 20000, orMemcpyHostToDevice, nullptr));
  std::fill(bytes.begin(), bytes.end(), 0);
  EXPECT_EQ(Read(memory, 20000), Pattern(20000));
  EXPECT_OK(orHostUnregister(bytes.data()));
}

}  // namespace
}  // namespace openreg::cts
