// SPDX-License-Identifier: BSD-3-Clause
#include <climits>
#include <cstring>
#include <iterator>
#include <set>
#include <thread>
#include <vector>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

TEST_F(DeviceTest, CountComesFromTheEnvironment) {
  EXPECT_EQ(std::to_string(count_), std::getenv("OPENREG_DEVICE_COUNT"));
  EXPECT_FAILS(orGetDeviceCount(nullptr), orErrorInvalidValue, "count is null");
}

TEST_F(DeviceTest, TheCurrentDeviceBelongsToItsThread) {
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

TEST_F(DeviceTest, AnInvalidIndexIsRefusedAndChangesNothing) {
  for (int index : {-1, count_, INT_MAX, INT_MIN}) {
    EXPECT_FAILS(orSetDevice(index), orErrorInvalidDevice, "is out of range");
    orDeviceProperties properties;
    EXPECT_FAILS(orGetDeviceProperties(&properties, index), orErrorInvalidDevice,
                 "is out of range");
    orStream_t stream;
    EXPECT_FAILS(orGetDefaultStream(&stream, index), orErrorInvalidDevice, "is out of range");
  }
  int device = -1;
  EXPECT_OK(orGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_FAILS(orGetDevice(nullptr), orErrorInvalidValue, "device is null");
}

TEST_F(DeviceTest, PropertiesDescribeTheDevice) {
  std::set<std::vector<uint8_t>> uuids;
  for (int device = 0; device < count_; ++device) {
    orDeviceProperties properties;
    std::memset(&properties, 0xff, sizeof(properties));
    ASSERT_OK(orGetDeviceProperties(&properties, device));
    EXPECT_LT(strnlen(properties.name, sizeof(properties.name)), sizeof(properties.name));
    EXPECT_GT(strnlen(properties.name, sizeof(properties.name)), 0u);
    EXPECT_EQ(properties.total_memory, size_t{256} << 20);
    EXPECT_EQ(properties.allocation_granularity, 4096u);
    EXPECT_EQ(properties.major, OPENREG_VERSION / 10000);
    EXPECT_GE(properties.multi_processor_count, 1);
    EXPECT_EQ(properties.max_threads_per_multi_processor, 1);
    EXPECT_EQ(properties.warp_size, 1);
    EXPECT_LT(properties.l2_cache_size, size_t{1} << 40);
    EXPECT_TRUE(uuids.emplace(std::begin(properties.uuid), std::end(properties.uuid)).second);
    orDeviceProperties again{};
    ASSERT_OK(orGetDeviceProperties(&again, device));
    EXPECT_EQ(std::memcmp(properties.uuid, again.uuid, sizeof(again.uuid)), 0);
  }
  EXPECT_FAILS(orGetDeviceProperties(nullptr, 0), orErrorInvalidValue, "properties is null");
}

TEST_F(DeviceTest, SynchronizeWaitsOnlyForTheStreamsOfItsDevice) {
  QueueLaunches();
  std::atomic<int> ran{0};
  for (int index = 0; index < 3; ++index) {
    EXPECT_OK(orLaunchKernel(CreateStream(), [&ran] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++ran;
    }));
  }
  Gate elsewhere;
  if (count_ > 1) {
    EXPECT_OK(orSetDevice(other()));
    EXPECT_OK(elsewhere.Launch(nullptr));
    EXPECT_OK(orSetDevice(0));
  }
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_EQ(ran.load(), 3);
  elsewhere.Open();
  EXPECT_OK(orSetDevice(other()));
  EXPECT_OK(orDeviceSynchronize());
}

TEST_F(DeviceTest, ResetWaitsAndReleasesEverythingOfItsDevice) {
  QueueLaunches();
  void* memory = nullptr;
  ASSERT_OK(orMalloc(&memory, 1000));
  const orStream_t stream = CreateStream();
  orEvent_t event;
  ASSERT_OK(orEventCreate(&event));
  void* elsewhere = nullptr;
  if (count_ > 1) {
    ASSERT_OK(orSetDevice(other()));
    ASSERT_OK(orMalloc(&elsewhere, 1000));
    ASSERT_OK(orSetDevice(0));
  }
  std::atomic<bool> ran{false};
  EXPECT_OK(orLaunchKernel(stream, [&ran] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ran = true;
    (void)orKernelFail(orErrorLaunchFailure, "dropped by the reset", nullptr, nullptr);
  }));
  ASSERT_OK(orDeviceReset());
  EXPECT_TRUE(ran.load());
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_FAILS(orFree(memory), orErrorInvalidDevicePointer, "not inside any live allocation");
  EXPECT_FAILS(orStreamQuery(stream), orErrorInvalidHandle,
               "is not a valid stream; it may have been destroyed");
  EXPECT_FAILS(orEventQuery(event), orErrorInvalidHandle,
               "is not a valid event; it may have been destroyed");
  size_t free_bytes = 0, total = 0;
  EXPECT_OK(orMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, total);
  // The default stream and the other device still work.
  EXPECT_OK(orLaunchKernel(nullptr, [&ran] { ran = false; }));
  EXPECT_OK(orDeviceSynchronize());
  EXPECT_FALSE(ran.load());
  EXPECT_OK(orFree(elsewhere));
}

TEST_F(DeviceTest, LaunchBlockingCanBeSwitched) {
  int blocking = -1;
  EXPECT_OK(orSetLaunchBlocking(1));
  EXPECT_OK(orGetLaunchBlocking(&blocking));
  EXPECT_EQ(blocking, 1);
  EXPECT_OK(orSetLaunchBlocking(0));
  EXPECT_OK(orGetLaunchBlocking(&blocking));
  EXPECT_EQ(blocking, 0);
  EXPECT_FAILS(orSetLaunchBlocking(2), orErrorInvalidValue, "expected 0 or 1");
  EXPECT_FAILS(orGetLaunchBlocking(nullptr), orErrorInvalidValue, "blocking is null");
}

}  // namespace
}  // namespace openreg::device
