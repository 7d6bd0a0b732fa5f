// SPDX-License-Identifier: BSD-3-Clause
//
// Tests devices (tier 1), and orDeviceReset and launch blocking (tier 2).
#include <climits>
#include <cstring>
#include <iterator>
#include <set>

#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

using Tier1DeviceTest = DriverTest;
using Tier2DeviceTest = Tier2Test;

TEST_F(Tier1DeviceTest, InitMayBeRepeated) {
  EXPECT_OK(orInit());
  EXPECT_OK(orInit());
}

TEST_F(Tier1DeviceTest, ThereIsADevice) {
  EXPECT_GE(count_, 1);
  EXPECT_LE(count_, OPENREG_MAX_DEVICES);
  EXPECT_FAILS(orGetDeviceCount(nullptr), orErrorInvalidValue);
}

TEST_F(Tier1DeviceTest, TheCurrentDeviceBelongsToItsThread) {
  EXPECT_OK(orSetDevice(other()));
  int device = -1;
  EXPECT_OK(orGetDevice(&device));
  EXPECT_EQ(device, other());
  std::thread([] {
    int device = -1;
    EXPECT_OK(orGetDevice(&device));
    EXPECT_EQ(device, 0);
  }).join();
}

TEST_F(Tier1DeviceTest, AnInvalidIndexIsRefusedAndChangesNothing) {
  for (int index : {-1, count_, INT_MAX, INT_MIN}) {
    EXPECT_FAILS(orSetDevice(index), orErrorInvalidDevice);
    orDeviceProperties properties;
    EXPECT_FAILS(orGetDeviceProperties(&properties, index), orErrorInvalidDevice);
    orStream_t stream;
    EXPECT_FAILS(orGetDefaultStream(&stream, index), orErrorInvalidDevice);
  }
  int device = -1;
  EXPECT_OK(orGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_FAILS(orGetDevice(nullptr), orErrorInvalidValue);
}

TEST_F(Tier1DeviceTest, PropertiesDescribeTheDevice) {
  std::set<std::vector<uint8_t>> uuids;
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    orDeviceProperties properties;
    std::memset(&properties, 0xff, sizeof(properties));
    ASSERT_OK(orGetDeviceProperties(&properties, device));
    EXPECT_LT(strnlen(properties.name, sizeof(properties.name)), sizeof(properties.name));
    EXPECT_GT(strnlen(properties.name, sizeof(properties.name)), 0u);
    size_t free_bytes = 0, total = 0;
    ASSERT_OK(orMemGetInfo(&free_bytes, &total));
    EXPECT_EQ(properties.total_memory, total);
    EXPECT_GE(properties.allocation_granularity, 1u);
    EXPECT_GE(properties.multi_processor_count, 1);
    EXPECT_GE(properties.max_threads_per_multi_processor, 1);
    EXPECT_GE(properties.warp_size, 1);
    EXPECT_LT(properties.l2_cache_size, size_t{1} << 40);
    EXPECT_TRUE(uuids.emplace(std::begin(properties.uuid), std::end(properties.uuid)).second);
    orDeviceProperties again{};
    ASSERT_OK(orGetDeviceProperties(&again, device));
    EXPECT_EQ(std::memcmp(properties.uuid, again.uuid, sizeof(again.uuid)), 0);
  }
  EXPECT_FAILS(orGetDeviceProperties(nullptr, 0), orErrorInvalidValue);
}

TEST_F(Tier1DeviceTest, SynchronizeWaitsForTheDefaultStream) {
  auto* memory = Allocate<uint32_t>(1 << 20);
  ASSERT_OK(TestedDriver().launch_fill(nullptr, memory, 1 << 20, 7));
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_OK(orStreamQuery(nullptr));
  EXPECT_EQ(ReadWord(memory + (1 << 20) - 1), 7u);
}

TEST_F(Tier2DeviceTest, SynchronizeWaitsOnlyForTheStreamsOfItsDevice) {
  std::atomic<int> ran{0};
  for (int index = 0; index < 3; ++index) {
    EXPECT_OK(QueueFunction(CreateStream(), [&ran] {
      Sleep(5);
      ++ran;
    }));
  }
  Gate elsewhere;
  if (count_ > 1) {
    EXPECT_OK(orSetDevice(other()));
    EXPECT_OK(elsewhere.Queue(nullptr));
    EXPECT_OK(orSetDevice(0));
  }
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_EQ(ran.load(), 3);
}

TEST_F(Tier2DeviceTest, ResetWaitsAndReleasesEverythingOfItsDevice) {
  void* memory = nullptr;
  ASSERT_OK(orMalloc(&memory, 1000));
  const orStream_t stream = CreateStream();
  const orEvent_t event = CreateEvent();
  void* elsewhere = nullptr;
  if (count_ > 1) {
    ASSERT_OK(orSetDevice(other()));
    ASSERT_OK(orMalloc(&elsewhere, 1000));
    ASSERT_OK(orSetDevice(0));
  }
  std::atomic<bool> ran{false};
  EXPECT_OK(QueueFunction(stream, [&ran] {
    Sleep(5);
    ran = true;
  }));
  EXPECT_OK(TestedDriver().launch_failing(stream));  // the reset must drop this error
  EXPECT_OK(TestedDriver().launch_failing(nullptr));
  ASSERT_OK(orDeviceReset());
  EXPECT_TRUE(ran.load());
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_FAILS(orFree(memory), orErrorInvalidDevicePointer);
  EXPECT_FAILS(orStreamQuery(stream), orErrorInvalidHandle);
  EXPECT_FAILS(orEventQuery(event), orErrorInvalidHandle);
  size_t free_bytes = 0, total = 0;
  EXPECT_OK(orMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, total);
  // The default stream and the other device still work.
  EXPECT_OK(QueueFunction(nullptr, [&ran] { ran = false; }));
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_FALSE(ran.load());
  EXPECT_OK(orFree(elsewhere));
}

TEST_F(Tier2DeviceTest, LaunchBlockingCanBeSwitched) {
  int blocking = -1;
  EXPECT_OK(orSetLaunchBlocking(1));
  EXPECT_OK(orGetLaunchBlocking(&blocking));
  EXPECT_EQ(blocking, 1);
  EXPECT_OK(orSetLaunchBlocking(0));
  EXPECT_OK(orGetLaunchBlocking(&blocking));
  EXPECT_EQ(blocking, 0);
  EXPECT_FAILS(orSetLaunchBlocking(2), orErrorInvalidValue);
  EXPECT_FAILS(orGetLaunchBlocking(nullptr), orErrorInvalidValue);
}

}  // namespace
}  // namespace openreg::cts
