// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/device/device_fixture.h"

namespace openreg::device {
namespace {

class KernelTest : public DeviceTest {
 protected:
  static orError_t Nothing(void*) { return orSuccess; }

  // Launches a kernel with these flags and returns whether it ran on this thread.
  static bool RunsHere(orStream_t stream, uint32_t flags) {
    std::thread::id ran_on;
    std::thread::id* where = &ran_on;
    const orLaunchAttributes attributes{"where", flags, 0};
    EXPECT_OK(orLaunchKernel(
        stream,
        [](void* arguments) {
          **static_cast<std::thread::id**>(arguments) = std::this_thread::get_id();
          return orSuccess;
        },
        &where, sizeof(where), &attributes));
    EXPECT_OK(orStreamSynchronize(stream));
    return ran_on == std::this_thread::get_id();
  }
};

TEST_F(KernelTest, GetsItsOwnAlignedCopyOfTheArguments) {
  for (uint32_t flags : {uint32_t{0}, uint32_t{orLaunchInline}, uint32_t{orLaunchParallel}}) {
    const orLaunchAttributes attributes{"copy", flags, 0};
    for (size_t size : {size_t{8}, size_t{9}, size_t{100}, size_t{OPENREG_MAX_ARGUMENT_BYTES}}) {
      struct Result {
        std::atomic<uint64_t> sum{0};
        std::atomic<bool> aligned{false};
      } result;
      std::vector<unsigned char> bytes(size + 1, 3);
      Result* pointer = &result;
      unsigned char* unaligned = bytes.data() + 1;
      std::memcpy(unaligned, &pointer, sizeof(pointer));
      ASSERT_OK(orLaunchKernel(
          nullptr,
          [](void* arguments) {
            Result* result;
            std::memcpy(&result, arguments, sizeof(result));
            result->aligned = reinterpret_cast<uintptr_t>(arguments) % 16 == 0;
            std::memset(arguments, 0xff,
                        sizeof(result));  // a kernel may write to its copy
            ++result->sum;
            return orSuccess;
          },
          unaligned, size, &attributes));
      Result* after;
      std::memcpy(&after, unaligned, sizeof(after));
      EXPECT_EQ(after, &result);
      std::memset(unaligned, 0, sizeof(pointer));  // the launch already has a copy
      ASSERT_OK(orStreamSynchronize(nullptr));
      EXPECT_EQ(result.sum.load(), 1u);
      EXPECT_TRUE(result.aligned.load());
    }
  }
}

TEST_F(KernelTest, BadLaunchesAreRefused) {
  char bytes[OPENREG_MAX_ARGUMENT_BYTES + 1] = {};
  const orLaunchAttributes unknown{"unknown", 0x80, 0};
  EXPECT_FAILS(orLaunchKernel(nullptr, nullptr, nullptr, 0, nullptr), orErrorInvalidValue,
               "orLaunchKernel");
  EXPECT_FAILS(orLaunchKernel(nullptr, Nothing, bytes, sizeof(bytes), nullptr), orErrorInvalidValue,
               "449 bytes");
  EXPECT_FAILS(orLaunchKernel(nullptr, Nothing, nullptr, 1, nullptr), orErrorInvalidValue,
               "arguments are (nil)");
  EXPECT_FAILS(orLaunchKernel(nullptr, Nothing, nullptr, 0, &unknown), orErrorInvalidValue,
               "flags are 0x80");
  EXPECT_FAILS(orLaunchKernel(nullptr, Nothing, bytes, std::numeric_limits<size_t>::max(), nullptr),
               orErrorInvalidValue, "orLaunchKernel");
  EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, nullptr));
  EXPECT_FAILS(orLaunchHostFunc(nullptr, nullptr, nullptr), orErrorInvalidValue,
               "function is null");
  EXPECT_FAILS(orKernelFail(orErrorUnknown, "no kernel", nullptr, nullptr), orErrorNotPermitted,
               "this thread is not running a kernel");
}

TEST_F(KernelTest, CheapKernelsRunInlineOnAnIdleStreamAndOthersDoNot) {
  const orStream_t stream = CreateStream();
  EXPECT_TRUE(RunsHere(stream, orLaunchInline));
  EXPECT_FALSE(RunsHere(stream, 0));
  EXPECT_FALSE(RunsHere(stream, orLaunchParallel));
  EXPECT_FALSE(
      RunsHere(stream, orLaunchParallel | orLaunchInline));  // orLaunchParallel takes precedence
}

TEST_F(KernelTest, ACheapKernelQueuesBehindPendingCommands) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  Gate gate;
  ASSERT_OK(gate.Launch(stream));
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.Open();
  });
  EXPECT_FALSE(RunsHere(stream, orLaunchInline));
  opener.join();
  // Pending waits and host callbacks count as pending commands, too.
  const orStream_t source = CreateStream();
  orEvent_t event;
  ASSERT_OK(orEventCreate(&event));
  Gate other_gate;
  ASSERT_OK(other_gate.Launch(source));
  ASSERT_OK(orEventRecord(event, source));
  ASSERT_OK(orStreamWaitEvent(stream, event, 0));
  std::thread other_opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    other_gate.Open();
  });
  EXPECT_FALSE(RunsHere(stream, orLaunchInline));
  other_opener.join();
  ASSERT_OK(orLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr));
  EXPECT_FALSE(RunsHere(stream, orLaunchInline));
}

TEST_F(KernelTest, ALaunchQueuesBehindAnInlineKernelOfAnotherThread) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  Gate gate;
  std::thread launcher([&] { EXPECT_OK(gate.Launch(stream, orLaunchInline)); });
  ASSERT_TRUE(gate.AwaitEntered());
  std::atomic<bool> ran{false};
  std::atomic<bool>* flag = &ran;
  const orLaunchAttributes cheap{"flag", orLaunchInline, 0};
  ASSERT_OK(orLaunchKernel(
      stream,
      [](void* arguments) {
        **static_cast<std::atomic<bool>**>(arguments) = true;
        return orSuccess;
      },
      &flag, sizeof(flag), &cheap));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(ran.load());
  gate.Open();
  launcher.join();
  ASSERT_OK(orStreamSynchronize(stream));
  EXPECT_TRUE(ran.load());
}

TEST_F(KernelTest, TheFirstErrorIsReturnedOnceAndLaterKernelsRun) {
  QueueLaunches();
  const orStream_t stream = CreateStream();
  std::atomic<int> ran{0};
  const orLaunchAttributes attributes{"aten::explode", 0, 0};
  ASSERT_OK(orLaunchKernel(
      stream,
      [](void*) { return orKernelFail(orErrorLaunchFailure, "index 7 of 5", nullptr, nullptr); },
      nullptr, 0, &attributes));
  ASSERT_OK(orLaunchKernel(stream, [&ran] {
    ++ran;
    (void)orKernelFail(orErrorUnknown, "second", nullptr, nullptr);
  }));
  EXPECT_FAILS(orStreamSynchronize(stream), orErrorLaunchFailure, "kernel aten::explode on stream");
  EXPECT_STREQ(std::strstr(orGetLastErrorDetail(), "failed:"), "failed: index 7 of 5");
  EXPECT_EQ(ran.load(), 1);
  EXPECT_OK(orStreamSynchronize(stream));
  EXPECT_OK(orDeviceSynchronize());
}

TEST_F(KernelTest, AReturnedErrorCodeIsAnErrorToo) {
  QueueLaunches();
  ASSERT_OK(
      orLaunchKernel(nullptr, [](void*) { return orErrorNotSupported; }, nullptr, 0, nullptr));
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorNotSupported,
               "it returned orErrorNotSupported (not supported) without a message");
}

TEST_F(KernelTest, AnInlineKernelsErrorIsReturnedByTheSynchronization) {
  QueueLaunches();
  const orStream_t stream = CreateStream();  // a new stream has no worker that may still be busy
  const orLaunchAttributes cheap{"cheap", orLaunchInline, 0};
  ASSERT_OK(orLaunchKernel(
      stream, [](void*) { return orKernelFail(orErrorUnknown, "inline", nullptr, nullptr); },
      nullptr, 0, &cheap));
  EXPECT_EQ(orPeekAtLastError(), orSuccess);
  EXPECT_OK(orStreamQuery(stream));
  EXPECT_FAILS(orStreamSynchronize(stream), orErrorUnknown, "kernel cheap on stream");
}

TEST_F(KernelTest, TheDeviceReturnsTheEarliestErrorFirst) {
  QueueLaunches();
  for (const char* message : {"earliest", "second", "last"}) {
    const orStream_t stream = CreateStream();
    ASSERT_OK(orLaunchKernel(
        stream, [message] { (void)orKernelFail(orErrorUnknown, message, nullptr, nullptr); }));
    ASSERT_TRUE(Eventually([&] { return orStreamQuery(stream) == orSuccess; }));
  }
  EXPECT_FAILS(orDeviceSynchronize(), orErrorUnknown, "earliest");
  EXPECT_FAILS(orDeviceSynchronize(), orErrorUnknown, "second");
  EXPECT_FAILS(orDeviceSynchronize(), orErrorUnknown, "last");
  EXPECT_OK(orDeviceSynchronize());
}

TEST_F(KernelTest, WithLaunchBlockingTheLaunchReturnsTheKernelsOwnError) {
  ASSERT_OK(orSetLaunchBlocking(0));
  ASSERT_OK(orLaunchKernel(
      nullptr, [] { (void)orKernelFail(orErrorUnknown, "from before", nullptr, nullptr); }));
  ASSERT_OK(orSetLaunchBlocking(1));
  for (uint32_t flags : {uint32_t{0}, uint32_t{orLaunchInline}, uint32_t{orLaunchParallel}}) {
    const orLaunchAttributes attributes{"blocked", flags, 0};
    EXPECT_FAILS(
        orLaunchKernel(
            nullptr,
            [](void*) { return orKernelFail(orErrorLaunchFailure, "at once", nullptr, nullptr); },
            nullptr, 0, &attributes),
        orErrorLaunchFailure, "kernel blocked on stream");
    EXPECT_OK(orLaunchKernel(nullptr, Nothing, nullptr, 0, &attributes));
  }
  // The stream still has the error that occurred before.
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorUnknown, "from before");
  EXPECT_OK(orStreamSynchronize(nullptr));
}

TEST_F(KernelTest, ThePayloadIsTakenByTheCallerOrDropped) {
  QueueLaunches();
  static std::atomic<int> dropped;
  dropped = 0;
  static int payload = 0;
  auto fail = [] {
    ASSERT_OK(orLaunchKernel(nullptr, [] {
      (void)orKernelFail(orErrorUnknown, "with payload", &payload, [](void*) { ++dropped; });
    }));
  };
  fail();
  EXPECT_EQ(orStreamSynchronize(nullptr), orErrorUnknown);
  EXPECT_EQ(orTakeErrorPayload(), &payload);
  EXPECT_EQ(orTakeErrorPayload(), nullptr);
  EXPECT_EQ(dropped.load(), 0);

  fail();
  EXPECT_EQ(orStreamSynchronize(nullptr), orErrorUnknown);
  EXPECT_EQ(orSetDevice(-1), orErrorInvalidDevice);  // replaces the earlier error
  EXPECT_EQ(orTakeErrorPayload(), nullptr);
  EXPECT_EQ(dropped.load(), 1);

  fail();
  fail();  // the second error is dropped
  EXPECT_EQ(orStreamSynchronize(nullptr), orErrorUnknown);
  EXPECT_EQ(dropped.load(), 2);
  EXPECT_EQ(orTakeErrorPayload(), &payload);

  std::thread([&] {
    fail();
    EXPECT_EQ(orStreamSynchronize(nullptr), orErrorUnknown);
  }).join();  // the thread ends without taking the payload
  EXPECT_EQ(dropped.load(), 3);

  fail();
  EXPECT_OK(orDeviceReset());
  EXPECT_EQ(dropped.load(), 4);
  orGetLastError();
}

TEST_F(KernelTest, CallsAreRefusedInsideKernelsAndCallbacks) {
  static void* device_memory;
  static orStream_t stream;
  static orEvent_t event;
  static std::atomic<int> checked;
  checked = 0;
  device_memory = Allocate<char>(100);
  stream = CreateStream();
  ASSERT_OK(orEventCreate(&event));
  static constexpr auto kCheck = [](void*) {
    EXPECT_EQ(orInKernel(), 1);
    void* pointer = nullptr;
    int device = 0;
    orStream_t new_stream;
    orEvent_t new_event;
    char byte = 0;
    const char* text = "was called inside a kernel or host callback";
    EXPECT_FAILS(orMalloc(&pointer, 1), orErrorNotPermitted, text);
    EXPECT_FAILS(orFree(device_memory), orErrorNotPermitted, text);
    EXPECT_FAILS(orMallocHost(&pointer, 1), orErrorNotPermitted, text);
    EXPECT_FAILS(orFreeHost(nullptr), orErrorNotPermitted, text);
    EXPECT_FAILS(orHostRegister(&byte, 1), orErrorNotPermitted, text);
    EXPECT_FAILS(orHostUnregister(&byte), orErrorNotPermitted, text);
    EXPECT_FAILS(orMemTrim(nullptr), orErrorNotPermitted, text);
    EXPECT_FAILS(orMemcpy(&byte, device_memory, 1, orMemcpyDefault), orErrorNotPermitted, text);
    EXPECT_FAILS(orMemcpyAsync(&byte, device_memory, 1, orMemcpyDefault, stream),
                 orErrorNotPermitted, text);
    EXPECT_FAILS(orMemcpyPeer(device_memory, 0, device_memory, 0, 1), orErrorNotPermitted, text);
    EXPECT_FAILS(orMemcpyPeerAsync(device_memory, 0, device_memory, 0, 1, stream),
                 orErrorNotPermitted, text);
    EXPECT_FAILS(orMemset(device_memory, 0, 1), orErrorNotPermitted, text);
    EXPECT_FAILS(orMemsetAsync(device_memory, 0, 1, stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orStreamCreate(&new_stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orStreamDestroy(stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orStreamSynchronize(stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orStreamWaitEvent(stream, event, 0), orErrorNotPermitted, text);
    EXPECT_FAILS(orEventCreate(&new_event), orErrorNotPermitted, text);
    EXPECT_FAILS(orEventDestroy(event), orErrorNotPermitted, text);
    EXPECT_FAILS(orEventRecord(event, stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orEventSynchronize(event), orErrorNotPermitted, text);
    EXPECT_FAILS(orDeviceSynchronize(), orErrorNotPermitted, text);
    EXPECT_FAILS(orDeviceReset(), orErrorNotPermitted, text);
    EXPECT_FAILS(orLaunchKernel(stream, Nothing, nullptr, 0, nullptr), orErrorNotPermitted, text);
    EXPECT_FAILS(orLaunchHostFunc(stream, [](void*) {}, nullptr), orErrorNotPermitted, text);
    orIpcMemoryHandle handle{};
    EXPECT_FAILS(orIpcExport(&handle, device_memory, 1, stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orIpcImport(&pointer, &handle, stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orIpcRelease(device_memory, stream), orErrorNotPermitted, text);
    EXPECT_FAILS(orInjectKernelDelay(1), orErrorNotPermitted, text);
    EXPECT_FAILS(orShutdown(), orErrorNotPermitted, text);
    // Queries are allowed.
    EXPECT_OK(orStreamGetDevice(stream, &device));
    EXPECT_OK(orEventQuery(event));
    EXPECT_OK(orGetKernelPointer(&pointer, device_memory));
    ++checked;
    return orSuccess;
  };
  for (uint32_t flags : {uint32_t{0}, uint32_t{orLaunchInline}, uint32_t{orLaunchParallel}}) {
    const orLaunchAttributes attributes{"check", flags, 0};
    ASSERT_OK(orLaunchKernel(nullptr, kCheck, nullptr, 0, &attributes));
    ASSERT_OK(orStreamSynchronize(nullptr));
  }
  ASSERT_OK(orLaunchHostFunc(nullptr, [](void* data) { (void)kCheck(data); }, nullptr));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(checked.load(), 4);
  EXPECT_EQ(orInKernel(), 0);
}

TEST_F(KernelTest, AHostCallbackMayFailItsStream) {
  ASSERT_OK(orLaunchHostFunc(
      nullptr,
      [](void*) { (void)orKernelFail(orErrorUnknown, "from a callback", nullptr, nullptr); },
      nullptr));
  EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorUnknown, "(host function)");
}

TEST_F(KernelTest, CallablesAreMovedInAndDestroyedOnce) {
  QueueLaunches();
  auto shared = std::make_shared<int>(5);
  std::atomic<int> result{0};
  ASSERT_OK(orLaunchKernel(
      nullptr, [&result](std::shared_ptr<int> value, int factor) { result = *value * factor; },
      shared, 3));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(result.load(), 15);
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_FAILS(orLaunchKernel(reinterpret_cast<orStream_t>(1), [shared] {}), orErrorInvalidHandle,
               "is not a valid stream");
  EXPECT_EQ(shared.use_count(), 1);
}

TEST_F(KernelTest, FailingCallablesAreDestroyedOnceWithLaunchBlocking) {
  auto shared = std::make_shared<int>(5);
  for (int blocking : {0, 1}) {
    ASSERT_OK(orSetLaunchBlocking(blocking));
    auto launch = [&] { return orLaunchKernel(nullptr, [shared] { return orErrorNotSupported; }); };
    if (blocking == 1) {
      EXPECT_FAILS(launch(), orErrorNotSupported, "it returned orErrorNotSupported");
    } else {
      ASSERT_OK(launch());
      EXPECT_FAILS(orStreamSynchronize(nullptr), orErrorNotSupported,
                   "it returned orErrorNotSupported");
    }
    EXPECT_OK(orStreamSynchronize(nullptr));
    EXPECT_EQ(shared.use_count(), 1);
  }
}

TEST_F(KernelTest, KernelsOfAStreamSeeItsDeviceAsCurrent) {
  ASSERT_OK(orSetDevice(other()));
  std::atomic<int> seen{-1};
  ASSERT_OK(orLaunchKernel(nullptr, [&seen] {
    int device = -1;
    EXPECT_OK(orGetDevice(&device));
    seen = device;
  }));
  ASSERT_OK(orStreamSynchronize(nullptr));
  EXPECT_EQ(seen.load(), other());
}

TEST_F(KernelTest, AnInlineKernelSeesItsStreamsDeviceAndRestoresTheCallers) {
  ASSERT_OK(orSetDevice(other()));
  const orStream_t stream = CreateStream();
  ASSERT_OK(orSetDevice(0));
  struct Found {
    int device = -1;
    int on_host = -1;
    static orError_t Look(void* arguments) {
      Found* found = *static_cast<Found**>(arguments);
      found->on_host = orKernelOnHost();
      EXPECT_OK(orGetDevice(&found->device));
      return orSetDevice(0);
    }
  } found;
  Found* argument = &found;
  const orLaunchAttributes cheap{"look", orLaunchInline, 0};
  ASSERT_OK(orLaunchKernel(stream, Found::Look, &argument, sizeof(argument), &cheap));
  EXPECT_EQ(found.on_host, 1);
  EXPECT_EQ(found.device, other());
  ASSERT_OK(orSetDevice(other()));
  ASSERT_OK(orLaunchKernel(stream, Found::Look, &argument, sizeof(argument), &cheap));
  int device = -1;
  ASSERT_OK(orGetDevice(&device));
  EXPECT_EQ(device, other());
}

}  // namespace
}  // namespace openreg::device
