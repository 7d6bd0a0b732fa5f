// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/fault_injection.h"

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

using FaultInjectionTest = DeviceTest;

TEST_F(FaultInjectionTest, TheNthAllocationFailsOnce) {
  ASSERT_OK(orInjectMallocFailure(3));
  void* pointer = nullptr;
  EXPECT_OK(orMalloc(&pointer, 1));
  EXPECT_OK(orMalloc(&pointer, 1));
  EXPECT_FAILS(orMalloc(&pointer, 1), orErrorOutOfMemory, "failure injected by a test");
  EXPECT_EQ(pointer, nullptr);
  EXPECT_OK(orMalloc(&pointer, 1));
}

TEST_F(FaultInjectionTest, ACanceledFailureDoesNotHappen) {
  ASSERT_OK(orInjectMallocFailure(1));
  ASSERT_OK(orInjectMallocFailure(0));
  EXPECT_NE(Allocate<char>(1), nullptr);
}

TEST_F(FaultInjectionTest, TheNthKernelFailsAndDoesNotRun) {
  ASSERT_OK(orSetLaunchBlocking(0));
  ASSERT_OK(orInjectKernelFailure(2));
  int ran = 0;
  int* counter = &ran;
  const orLaunchAttributes cheap{"cheap", orLaunchInline, 0};
  auto launch = [&] {
    return orLaunchKernel(
        nullptr,
        [](void* arguments) {
          ++**static_cast<int**>(arguments);
          return orSuccess;
        },
        &counter, sizeof(counter), &cheap);
  };
  char* memory = Allocate<char>(10);
  ASSERT_OK(launch());
  ASSERT_OK(orMemsetAsync(memory, 0, 10, nullptr));  // fills are not counted
  ASSERT_OK(launch());
  ASSERT_OK(launch());
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorLaunchFailure, "failure injected by a test");
  EXPECT_EQ(ran, 2);
}

TEST_F(FaultInjectionTest, ADelayMakesAMissingSynchronizationVisible) {
  ASSERT_OK(orSetLaunchBlocking(0));
  ASSERT_OK(orInjectKernelDelay(200'000'000));
  std::atomic<int> shared{0};
  std::atomic<int>* pointer = &shared;
  const orLaunchAttributes cheap{"cheap", orLaunchInline, 0};
  ASSERT_OK(orLaunchKernel(
      nullptr,
      [](void* arguments) {
        **static_cast<std::atomic<int>**>(arguments) = 1;
        return orSuccess;
      },
      &pointer, sizeof(pointer), &cheap));
  EXPECT_EQ(orStreamQuery(nullptr), orErrorNotReady);  // neither run inline nor done
  EXPECT_EQ(shared.load(), 0);  // a host that does not synchronize reads the old value
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(shared.load(), 1);
}

}  // namespace
}  // namespace openreg::device
