// SPDX-License-Identifier: BSD-3-Clause
//
// Tests kernels and their errors (tier 1), and launch blocking and host functions (tier 2).
#include <atomic>

#include "runtime/device/cts/fixture.h"

namespace openreg::cts {
namespace {

class Tier1KernelTest : public DriverTest {
 protected:
  // Launches a kernel that fails, and returns its error. With launch blocking, the error comes from
  // the launch, otherwise from the synchronization.
  static orError_t FailAndSynchronize() {
    const orError_t launched = TestedDriver().launch_failing(nullptr);
    return launched != orSuccess ? launched : orStreamSynchronize(nullptr);
  }
};
using Tier2KernelTest = Tier2Test;

TEST_F(Tier1KernelTest, WritesDeviceMemoryOfItsDevice) {
  for (int device = 0; device < count_; ++device) {
    ASSERT_OK(orSetDevice(device));
    auto* memory = Allocate<uint32_t>(3000);
    ASSERT_OK(orMemset(memory, 0, 3000 * sizeof(uint32_t)));
    ASSERT_OK(TestedDriver().launch_fill(nullptr, memory + 1000, 1000, 0x12345678));
    ASSERT_OK(orStreamSynchronize(nullptr));
    EXPECT_EQ(ReadWord(memory + 999), 0u);
    EXPECT_EQ(ReadWord(memory + 1000), 0x12345678u);
    EXPECT_EQ(ReadWord(memory + 1999), 0x12345678u);
    EXPECT_EQ(ReadWord(memory + 2000), 0u);
  }
}

TEST_F(Tier1KernelTest, KernelsRunInOrder) {
  auto* memory = Allocate<uint32_t>(10000);
  for (uint32_t value = 0; value < 2000; ++value) {
    ASSERT_OK(TestedDriver().launch_fill(nullptr, memory, 1 + value % 100, value));
  }
  EXPECT_EQ(ReadWord(memory), 1999u);
  EXPECT_EQ(ReadWord(memory + 99), 1999u);
  EXPECT_EQ(ReadWord(memory + 98), 1999u);
}

TEST_F(Tier1KernelTest, AnErrorIsReturnedOnceAndLaterKernelsRun) {
  auto* memory = Allocate<uint32_t>(1);
  EXPECT_FAILS(FailAndSynchronize(), orErrorLaunchFailure);
  EXPECT_OK(orStreamSynchronize(nullptr));
  EXPECT_OK(orDeviceSynchronize());
  (void)TestedDriver().launch_failing(nullptr);
  ASSERT_OK(TestedDriver().launch_fill(nullptr, memory, 1, 5));
  (void)orStreamSynchronize(nullptr);
  EXPECT_EQ(ReadWord(memory), 5u);
  orGetLastError();
}

TEST_F(Tier1KernelTest, BadLaunchesAreRefused) {
  char bytes[OPENREG_MAX_ARGUMENT_BYTES + 1] = {};
  EXPECT_FAILS(orLaunchKernel(nullptr, nullptr, nullptr, 0), orErrorInvalidValue);
  EXPECT_FAILS(orLaunchKernel(nullptr, nullptr, bytes, sizeof(bytes)), orErrorInvalidValue);
  EXPECT_EQ(orInKernel(), 0);
}

TEST_F(Tier2KernelTest, TheSynchronizationReturnsTheError) {
  const orStream_t stream = CreateStream();
  ASSERT_OK(TestedDriver().launch_failing(stream));
  ASSERT_TRUE(Eventually([&] { return orStreamQuery(stream) == orSuccess; }));
  EXPECT_EQ(orPeekAtLastError(), orSuccess);  // a query must not return the error
  EXPECT_FAILS(orStreamSynchronize(stream), orErrorLaunchFailure);
  EXPECT_OK(orStreamSynchronize(stream));
}

TEST_F(Tier2KernelTest, TheDeviceReturnsTheErrorsOfItsStreamsOneByOne) {
  for (int number = 0; number < 3; ++number) {
    const orStream_t stream = CreateStream();
    ASSERT_OK(TestedDriver().launch_failing(stream));
    ASSERT_OK(TestedDriver().launch_failing(stream));  // only the first error is stored
  }
  for (int number = 0; number < 3; ++number) {
    EXPECT_FAILS(orDeviceSynchronize(), orErrorLaunchFailure);
  }
  EXPECT_OK(orDeviceSynchronize());
}

TEST_F(Tier2KernelTest, WithLaunchBlockingTheLaunchReturnsTheKernelsOwnError) {
  ASSERT_OK(TestedDriver().launch_failing(nullptr));  // an error before the blocking launches
  ASSERT_OK(orSetLaunchBlocking(1));
  auto* memory = Allocate<uint32_t>(1 << 20);
  EXPECT_FAILS(TestedDriver().launch_failing(nullptr), orErrorLaunchFailure);
  EXPECT_OK(TestedDriver().launch_fill(nullptr, memory, 1 << 20, 1));
  EXPECT_OK(orStreamQuery(nullptr));
  // The stream must still have the error that occurred before.
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorLaunchFailure);
  EXPECT_OK(orStreamSynchronize(nullptr));
}

TEST_F(Tier2KernelTest, KernelsAreOrderedByEvents) {
  auto* memory = Allocate<uint32_t>(1 << 20);
  const orStream_t first = CreateStream();
  const orStream_t second = CreateStream();
  const orEvent_t event = CreateEvent();
  for (uint32_t round = 0; round < 20; ++round) {
    ASSERT_OK(TestedDriver().launch_fill(first, memory, 1 << 20, 2 * round));
    ASSERT_OK(orEventRecord(event, first));
    ASSERT_OK(orStreamWaitEvent(second, event, 0));
    ASSERT_OK(TestedDriver().launch_fill(second, memory, 1 << 20, 2 * round + 1));
    ASSERT_OK(orStreamSynchronize(second));
    EXPECT_EQ(ReadWord(memory + (1 << 20) - 1), 2 * round + 1);
  }
}

TEST_F(Tier2KernelTest, HostFunctionsSeeTheDeviceOfTheirStream) {
  ASSERT_OK(orSetDevice(other()));
  std::atomic<int> seen{-1};
  std::atomic<int> in_kernel{0};
  ASSERT_OK(QueueFunction(nullptr, [&] {
    int device = -1;
    EXPECT_OK(orGetDevice(&device));
    seen = device;
    in_kernel = orInKernel();
  }));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(seen.load(), other());
  EXPECT_EQ(in_kernel.load(), 1);
  EXPECT_FAILS(orLaunchHostFunc(nullptr, nullptr, nullptr), orErrorInvalidValue);
}

TEST_F(Tier2KernelTest, CallsAreRefusedInsideHostFunctions) {
  void* device_memory = Allocate<uint32_t>(100);
  const orStream_t stream = CreateStream();
  const orEvent_t event = CreateEvent();
  std::atomic<bool> checked{false};
  ASSERT_OK(QueueFunction(nullptr, [&] {
    void* pointer = nullptr;
    int device = 0;
    orStream_t new_stream;
    orEvent_t new_event;
    char byte = 0;
    EXPECT_FAILS(orMalloc(&pointer, 1), orErrorNotPermitted);
    EXPECT_FAILS(orFree(device_memory), orErrorNotPermitted);
    EXPECT_FAILS(orMallocHost(&pointer, 1), orErrorNotPermitted);
    EXPECT_FAILS(orFreeHost(nullptr), orErrorNotPermitted);
    EXPECT_FAILS(orHostRegister(&byte, 1), orErrorNotPermitted);
    EXPECT_FAILS(orHostUnregister(&byte), orErrorNotPermitted);
    EXPECT_FAILS(orMemTrim(nullptr), orErrorNotPermitted);
    EXPECT_FAILS(orMemcpy(&byte, device_memory, 1, orMemcpyDefault), orErrorNotPermitted);
    EXPECT_FAILS(orMemcpyAsync(&byte, device_memory, 1, orMemcpyDefault, stream),
                 orErrorNotPermitted);
    EXPECT_FAILS(orMemcpyPeer(device_memory, 0, device_memory, 0, 1), orErrorNotPermitted);
    EXPECT_FAILS(orMemcpyPeerAsync(device_memory, 0, device_memory, 0, 1, stream),
                 orErrorNotPermitted);
    EXPECT_FAILS(orMemset(device_memory, 0, 1), orErrorNotPermitted);
    EXPECT_FAILS(orMemsetAsync(device_memory, 0, 1, stream), orErrorNotPermitted);
    EXPECT_FAILS(orStreamCreate(&new_stream), orErrorNotPermitted);
    EXPECT_FAILS(orStreamDestroy(stream), orErrorNotPermitted);
    EXPECT_FAILS(orStreamSynchronize(stream), orErrorNotPermitted);
    EXPECT_FAILS(orStreamWaitEvent(stream, event, 0), orErrorNotPermitted);
    EXPECT_FAILS(orEventCreate(&new_event), orErrorNotPermitted);
    EXPECT_FAILS(orEventDestroy(event), orErrorNotPermitted);
    EXPECT_FAILS(orEventRecord(event, stream), orErrorNotPermitted);
    EXPECT_FAILS(orEventSynchronize(event), orErrorNotPermitted);
    EXPECT_FAILS(orDeviceSynchronize(), orErrorNotPermitted);
    EXPECT_FAILS(orDeviceReset(), orErrorNotPermitted);
    EXPECT_FAILS(TestedDriver().launch_failing(stream), orErrorNotPermitted);
    EXPECT_FAILS(orLaunchHostFunc(stream, [](void*) {}, nullptr), orErrorNotPermitted);
    EXPECT_FAILS(orShutdown(), orErrorNotPermitted);
    // Queries are allowed.
    orPointerAttributes attributes;
    EXPECT_OK(orPointerGetAttributes(&attributes, device_memory));
    EXPECT_OK(orStreamGetDevice(stream, &device));
    EXPECT_OK(orStreamQuery(stream));
    EXPECT_OK(orEventQuery(event));
    checked = true;
  }));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_TRUE(checked.load());
}

}  // namespace
}  // namespace openreg::cts
