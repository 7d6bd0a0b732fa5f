// SPDX-License-Identifier: BSD-3-Clause
//
// Tests the caching allocator on the emulated device, with real memory, streams, kernels and
// errors.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/device_source.h"
#include "runtime/allocator/device_timeline.h"
#include "runtime/allocator/gate.h"
#include "runtime/allocator/size_class.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::allocator {
namespace {

constexpr size_t kDeviceMemory = 64 * kMiB;

char* kernel_pointer(const Block* block) {
  void* pointer = nullptr;
  EXPECT_EQ(orGetKernelPointer(&pointer, block->pointer), orSuccess);
  return static_cast<char*>(pointer);
}

class DeviceMemoryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(setenv("OPENREG_DEVICE_MEMORY", "64M", 1), 0);
    ASSERT_EQ(setenv("OPENREG_DEVICE_COUNT", "2", 1), 0);
  }
  void SetUp() override {
    ASSERT_EQ(orSetDevice(0), orSuccess);
    ASSERT_EQ(orStreamCreate(&stream_), orSuccess);
    ASSERT_EQ(orStreamCreate(&other_), orSuccess);
  }
  void TearDown() override {
    ASSERT_EQ(orSetDevice(0), orSuccess);
    EXPECT_EQ(orDeviceSynchronize(), orSuccess);
    for (orStream_t stream : {stream_, other_}) {
      (void)orStreamDestroy(stream);  // the test may already have destroyed it
    }
  }

  orStream_t stream_ = nullptr;
  orStream_t other_ = nullptr;
  DeviceSource source_{0};
  DeviceTimeline timeline_;
  CachingAllocator allocator_{0, &source_, &timeline_};
};

TEST_F(DeviceMemoryTest, AStreamReusesFreedMemoryImmediately) {
  auto result = std::make_unique<std::array<char, 2>>();
  Block* first = allocator_.allocate(1000, stream_);
  EXPECT_EQ(orLaunchKernel(
                stream_,
                [](char* memory, char* out) {
                  std::memset(memory, 'a', 1000);
                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                  *out = memory[999];
                },
                kernel_pointer(first), result->data()),
            orSuccess);
  allocator_.free(first);
  Block* second = allocator_.allocate(1000, stream_);
  ASSERT_EQ(second, first) << "without waiting for the kernel";
  EXPECT_EQ(orLaunchKernel(
                stream_,
                [](char* memory, char* out) {
                  std::memset(memory, 'b', 1000);
                  *out = memory[999];
                },
                kernel_pointer(second), result->data() + 1),
            orSuccess);
  EXPECT_EQ(orStreamSynchronize(stream_), orSuccess);
  EXPECT_EQ((*result)[0], 'a');
  EXPECT_EQ((*result)[1], 'b');
  allocator_.free(second);
}

TEST_F(DeviceMemoryTest, MemoryThatAnotherStreamUsesIsReclaimedAfterItsWork) {
  Block* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, other_);
  {
    Gate gate(other_);
    allocator_.free(block);
    Block* next = allocator_.allocate(1000, stream_);
    EXPECT_NE(next, block);
    allocator_.free(next);
  }
  EXPECT_EQ(orStreamSynchronize(other_), orSuccess);
  // This allocation reclaims the block and returns it, because it is the most recently freed block.
  Block* again = allocator_.allocate(1000, stream_);
  EXPECT_EQ(again, block);
  allocator_.free(again);
}

TEST_F(DeviceMemoryTest, AStreamOfAnotherDeviceCanBeRecorded) {
  orStream_t remote = nullptr;
  ASSERT_EQ(orGetDefaultStream(&remote, 1), orSuccess);
  Block* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, remote);
  {
    Gate gate(remote);
    allocator_.free(block);
    Block* next = allocator_.allocate(1000, stream_);
    EXPECT_NE(next, block);
    allocator_.free(next);
  }
  int device = -1;
  EXPECT_EQ(orGetDevice(&device), orSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(orStreamSynchronize(remote), orSuccess);
  EXPECT_EQ(allocator_.allocate(1000, stream_), block);
}

TEST_F(DeviceMemoryTest, EmptyCacheWaitsForKernelsAndReturnsTheMemory) {
  std::atomic<bool> done{false};
  Block* block = allocator_.allocate(30 * kMiB, stream_);
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_EQ(orMemGetInfo(&free_before, &total), orSuccess);
  EXPECT_EQ(total, kDeviceMemory);
  EXPECT_EQ(orLaunchKernel(
                stream_,
                [](char* memory, std::atomic<bool>* finished) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  std::memset(memory, 1, 30 * kMiB);
                  *finished = true;
                },
                kernel_pointer(block), &done),
            orSuccess);
  allocator_.free(block);
  allocator_.empty_cache();
  EXPECT_TRUE(done);
  size_t free_after = 0;
  ASSERT_EQ(orMemGetInfo(&free_after, &total), orSuccess);
  EXPECT_EQ(free_after, free_before + 30 * kMiB);
}

TEST_F(DeviceMemoryTest, WaitingLeavesTheErrorOfAKernelToTheProgram) {
  Block* block = allocator_.allocate(100, stream_);
  const orKernelFunction_t failing = [](void* /*arguments*/) {
    return orKernelFail(orErrorLaunchFailure, "broken on purpose", nullptr, nullptr);
  };
  EXPECT_EQ(orLaunchKernel(stream_, failing, nullptr, 0, nullptr), orSuccess);
  allocator_.free(block);
  EXPECT_NO_THROW(allocator_.empty_cache());
  EXPECT_EQ(allocator_.stats().stat[kReservedBytes][kAggregate].current, 0);
  EXPECT_EQ(orStreamSynchronize(stream_), orErrorLaunchFailure);
}

TEST_F(DeviceMemoryTest, TheWorkOfADestroyedStreamIsWaitedFor) {
  std::atomic<bool> done{false};
  Block* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, other_);
  EXPECT_EQ(orLaunchKernel(
                other_,
                [](char* memory, std::atomic<bool>* finished) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  memory[0] = 1;
                  *finished = true;
                },
                kernel_pointer(block), &done),
            orSuccess);
  ASSERT_EQ(orStreamDestroy(other_), orSuccess);
  allocator_.free(block);
  EXPECT_TRUE(done);
  EXPECT_EQ(allocator_.allocate(1000, stream_), block);
}

TEST_F(DeviceMemoryTest, OutOfMemoryRetriesAndThenReportsTheFigures) {
  Block* cached = allocator_.allocate(40 * kMiB, other_);
  allocator_.free(cached);
  Block* block = allocator_.allocate(50 * kMiB, stream_);
  try {
    allocator_.allocate(30 * kMiB, other_);
    FAIL() << "there is no room";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.figures().device_total, kDeviceMemory);
    EXPECT_EQ(error.figures().device_free, kDeviceMemory - 50 * kMiB);
    EXPECT_EQ(error.figures().allocated, 50 * kMiB);
    EXPECT_FALSE(error.figures().reason.empty());
    EXPECT_EQ(orPeekAtLastError(), orSuccess) << "the error was dealt with";
  }
  allocator_.free(block);
  EXPECT_EQ(allocator_.allocate(30 * kMiB, other_)->size, 30 * kMiB);
}

// The call must also fail if another thread holds the allocator's mutex while it waits for this
// kernel.
TEST_F(DeviceMemoryTest, GrowingInsideAKernelIsAnErrorNotADeadlock) {
  Block* shared = allocator_.allocate(1000, stream_);
  allocator_.record_stream(shared, other_);
  allocator_.free(allocator_.allocate(10 * kMiB, stream_));
  std::array<std::atomic<int>, 3> codes{-1, -1, -1};
  EXPECT_EQ(orLaunchKernel(
                stream_,
                [](CachingAllocator* allocator, orStream_t stream, Block* block,
                   std::array<std::atomic<int>, 3>* found) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  const auto code = [](const auto& function) {
                    try {
                      function();
                    } catch (const Error& error) {
                      return error.code();
                    }
                    return orSuccess;
                  };
                  (*found)[0] = code([&] { allocator->allocate(30 * kMiB, stream); });
                  (*found)[1] = code([&] { allocator->empty_cache(); });
                  (*found)[2] = code([&] { allocator->free(block); });
                },
                &allocator_, stream_, shared, &codes),
            orSuccess);
  allocator_.empty_cache();
  EXPECT_EQ(orStreamSynchronize(stream_), orSuccess);
  EXPECT_EQ(codes[0], orErrorNotPermitted);
  EXPECT_EQ(codes[1], orErrorNotPermitted);
  EXPECT_EQ(codes[2], orSuccess);
}

TEST_F(DeviceMemoryTest, WorksOnADeviceThatIsNotCurrent) {
  DeviceSource source(1);
  CachingAllocator allocator(1, &source, &timeline_);
  orStream_t remote = nullptr;
  ASSERT_EQ(orGetDefaultStream(&remote, 1), orSuccess);
  Block* block = allocator.allocate(5 * kMiB, remote);
  orPointerAttributes attributes{};
  ASSERT_EQ(orPointerGetAttributes(&attributes, block->pointer), orSuccess);
  EXPECT_EQ(attributes.type, orMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.size, kLargeSegment);
  allocator.free(block);
  allocator.empty_cache();
  int device = -1;
  EXPECT_EQ(orGetDevice(&device), orSuccess);
  EXPECT_EQ(device, 0);
}

TEST_F(DeviceMemoryTest, MemoryThatACapturedStreamMayUseIsKept) {
  const auto reserved = [this] {
    return allocator_.stats().stat[kReservedBytes][kAggregate].current;
  };
  Block* block = allocator_.allocate(30 * kMiB, stream_);
  Block* small = allocator_.allocate(100, stream_);
  const void* const places[] = {block->pointer, small->pointer};
  const int64_t before = reserved();
  orGraph_t graph = nullptr;
  {
    const Gate gate(stream_);
    allocator_.free(block);
    allocator_.free(small);
    ASSERT_EQ(orStreamBeginCapture(stream_, orStreamCaptureModeGlobal), orSuccess);
    try {
      allocator_.empty_cache();
      ADD_FAILURE() << "a gate holds the stream";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), orErrorCaptureUnsupported);
    }
    EXPECT_EQ(reserved(), before);
    EXPECT_EQ(allocator_.stats().num_device_free, 0);
    ASSERT_EQ(orStreamEndCapture(stream_, &graph), orSuccess) << orGetLastErrorDetail();
  }
  EXPECT_EQ(orGraphDestroy(graph), orSuccess);
  block = allocator_.allocate(30 * kMiB, stream_);
  small = allocator_.allocate(100, stream_);
  EXPECT_EQ(block->pointer, places[0]);
  EXPECT_EQ(small->pointer, places[1]);
  allocator_.free(block);
  allocator_.free(small);
  allocator_.empty_cache();
  EXPECT_EQ(reserved(), 0);
}

TEST_F(DeviceMemoryTest, AFullDeviceReleasesMemoryThatNoCapturedStreamUses) {
  Block* captured = allocator_.allocate(20 * kMiB, stream_);
  allocator_.free(captured);
  Block* cached = allocator_.allocate(30 * kMiB, other_);
  allocator_.free(cached);
  orStream_t third = nullptr;
  ASSERT_EQ(orStreamCreate(&third), orSuccess);
  ASSERT_EQ(orStreamBeginCapture(stream_, orStreamCaptureModeGlobal), orSuccess);
  Block* block = allocator_.allocate(40 * kMiB, third);  // reuses the free memory of `other_`
  try {
    allocator_.allocate(20 * kMiB, third);
    ADD_FAILURE() << "there is no room";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(error.figures().reason.find("capture"), std::string::npos) << error.what();
  }
  orGraph_t graph = nullptr;
  ASSERT_EQ(orStreamEndCapture(stream_, &graph), orSuccess) << orGetLastErrorDetail();
  EXPECT_EQ(orGraphDestroy(graph), orSuccess);
  allocator_.free(allocator_.allocate(20 * kMiB, third));
  allocator_.free(block);
  EXPECT_EQ(orStreamDestroy(third), orSuccess);
}

TEST_F(DeviceMemoryTest, TheWorkOfADestroyedStreamIsWaitedForDuringACapture) {
  std::atomic<bool> done{false};
  Block* block = allocator_.allocate(1000, stream_);
  allocator_.record_stream(block, other_);
  EXPECT_EQ(orLaunchKernel(
                other_,
                [](std::atomic<bool>* finished) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  *finished = true;
                },
                &done),
            orSuccess);
  ASSERT_EQ(orStreamDestroy(other_), orSuccess);
  ASSERT_EQ(orStreamBeginCapture(stream_, orStreamCaptureModeGlobal), orSuccess);
  EXPECT_NO_THROW(allocator_.free(block));
  EXPECT_TRUE(done);
  orGraph_t graph = nullptr;
  EXPECT_EQ(orStreamEndCapture(stream_, &graph), orSuccess) << orGetLastErrorDetail();
  EXPECT_EQ(orGraphDestroy(graph), orSuccess);
}

// A block may be freed in a kernel, because the last owner of a tensor may be a kernel or a host
// callback.
TEST_F(DeviceMemoryTest, ABlockThatIsFreedInAKernelWaitsForItsOtherStreams) {
  Block* block = allocator_.allocate(1000, stream_);
  Block* beside = allocator_.allocate(3 * kMiB, stream_);
  allocator_.record_stream(block, other_);
  allocator_.record_stream(beside, other_);
  orError_t freed = orErrorUnknown;
  {
    const Gate gate(other_);
    EXPECT_EQ(orLaunchKernel(stream_,
                             [&] {
                               try {
                                 allocator_.free(block);
                                 allocator_.free(beside);
                                 freed = orSuccess;
                               } catch (const Error& error) {
                                 freed = error.code();
                               }
                             }),
              orSuccess);
    ASSERT_EQ(orStreamSynchronize(stream_), orSuccess);
    EXPECT_EQ(freed, orSuccess);
    EXPECT_EQ(allocator_.stats().stat[kAllocation][kAggregate].current, 0);
    EXPECT_EQ(allocator_.stats().stat[kActive][kAggregate].current, 2);
    EXPECT_THROW(allocator_.free(block), Error) << "twice";
    Block* next = allocator_.allocate(1000, stream_);
    EXPECT_NE(next, block);
    allocator_.free(next);
  }
  ASSERT_EQ(orStreamSynchronize(other_), orSuccess);
  Block* again = allocator_.allocate(1000, stream_);
  EXPECT_EQ(again, block);
  allocator_.free(again);
  EXPECT_EQ(allocator_.stats().stat[kActive][kAggregate].current, 0);
}

TEST_F(DeviceMemoryTest, EmptyCacheReleasesBlocksFreedInKernels) {
  for (const bool full : {false, true}) {
    Block* block = allocator_.allocate(40 * kMiB, stream_);
    allocator_.record_stream(block, other_);
    EXPECT_EQ(orLaunchKernel(stream_, [&] { allocator_.free(block); }), orSuccess);
    ASSERT_EQ(orStreamSynchronize(stream_), orSuccess);
    if (full) {
      allocator_.free(allocator_.allocate(50 * kMiB, other_));
    }
    allocator_.empty_cache();
    EXPECT_EQ(allocator_.stats().stat[kReservedBytes][kAggregate].current, 0);
  }
}

}  // namespace
}  // namespace openreg::allocator
