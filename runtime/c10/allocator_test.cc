// SPDX-License-Identifier: BSD-3-Clause
//
// Tests device and pinned memory through torch's interfaces.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "runtime/c10/device_allocator.h"
#include "runtime/c10/error.h"
#include "runtime/c10/host_allocator.h"
#include "runtime/c10/stream.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

int64_t allocated_bytes(c10::DeviceIndex device) {
  return device_allocator()->getDeviceStats(device).allocated_bytes[0].current;
}

struct Gate {
  std::atomic<bool> open{false};
};

void launch_gate(const c10::Stream& stream, Gate* gate) {
  OPENREG_CHECK(orLaunchKernel(
      native_stream(stream),
      [](Gate* g) {
        while (!g->open.load()) {
          std::this_thread::yield();
        }
      },
      gate));
}

TEST(DeviceAllocatorTest, IsRegisteredWithTorch) {
  EXPECT_EQ(c10::getDeviceAllocator(kOpenRegType), device_allocator());
  EXPECT_TRUE(device_allocator()->initialized() || !is_initialized());
}

TEST(DeviceAllocatorTest, CountsBytesOfTheRightDevice) {
  const int64_t before0 = allocated_bytes(0);
  const int64_t before1 = allocated_bytes(1);
  {
    const c10::DataPtr data = allocate_on(1, 1 << 20);
    EXPECT_EQ(data.device(), c10::Device(kOpenRegType, 1));
    EXPECT_GE(allocated_bytes(1), before1 + (1 << 20));
    EXPECT_EQ(allocated_bytes(0), before0);
  }
  EXPECT_EQ(allocated_bytes(1), before1);
}

TEST(DeviceAllocatorTest, PrivatePoolsHaveTheirOwnSegments) {
  const c10::MempoolId_t id = new_pool_id();
  EXPECT_NE(id, new_pool_id());
  EXPECT_FALSE(pool_exists(1, id));
  begin_allocate_to_pool(1, id, [](orStream_t) { return true; });
  c10::DataPtr data = allocate_on(1, 3 << 20);
  const c10::DataPtr elsewhere = allocate_on(0, 3 << 20);
  end_allocate_to_pool(1, id);
  EXPECT_TRUE(pool_exists(1, id));
  EXPECT_FALSE(pool_exists(0, id));
  EXPECT_EQ(pool_use_count(1, id), 1);
  const auto held = [&] {
    return device_allocator()->getDeviceStats(1).reserved_bytes_by_private_pools[id][0].current;
  };
  EXPECT_GE(held(), 3 << 20);
  data.clear();
  device_allocator()->emptyCache(id);
  EXPECT_GE(held(), 3 << 20);
  release_pool(1, id);
  device_allocator()->emptyCache(id);
  EXPECT_EQ(held(), 0);
  EXPECT_FALSE(pool_exists(1, id));
  EXPECT_THROW(release_pool(1, id), c10::Error);
  EXPECT_THROW(begin_allocate_to_pool(1, {0, 0}, [](orStream_t) { return true; }), c10::Error);
  EXPECT_THROW(use_pool(99, id), c10::Error);
}

TEST(DeviceAllocatorTest, FractionsOutOfRangeAreRejected) {
  EXPECT_THROW(set_memory_fraction(0, 1.5), c10::Error);
  EXPECT_THROW(set_memory_fraction(0, -1), c10::Error);
  EXPECT_EQ(memory_fraction(0), 1);
}

TEST(DeviceAllocatorTest, ZeroBytesGiveNoMemory) {
  const c10::DataPtr data = allocate_on(0, 0);
  EXPECT_EQ(data.get(), nullptr);
  EXPECT_EQ(data.device(), c10::Device(kOpenRegType, 0));
  EXPECT_EQ(block_of(data), nullptr);
}

TEST(DeviceAllocatorTest, FreedMemoryIsReusedOnItsStream) {
  void* first = nullptr;
  {
    const c10::DataPtr data = allocate_on(0, 4096);
    first = data.get();
  }
  EXPECT_EQ(allocate_on(0, 4096).get(), first);
}

TEST(DeviceAllocatorTest, RecordStreamDefersReuse) {
  Gate gate;
  const c10::Stream other = pooled_stream(0, 0);
  void* first = nullptr;
  {
    const c10::DataPtr data = allocate_on(0, 5 << 20);
    first = data.get();
    launch_gate(other, &gate);
    device_allocator()->recordStream(data, other);
  }
  EXPECT_NE(allocate_on(0, 5 << 20).get(), first);
  gate.open = true;
  synchronize_device(0);
  bool reused = false;
  for (int i = 0; i < 3 && !reused; ++i) {
    reused = allocate_on(0, 5 << 20).get() == first;
  }
  EXPECT_TRUE(reused);
}

TEST(DeviceAllocatorTest, OutOfMemoryIsTorchsErrorAndTheNextAllocationWorks) {
  const auto [free_bytes, total_bytes] = device_allocator()->getMemoryInfo(0);
  EXPECT_LE(free_bytes, total_bytes);
  EXPECT_THROW((void)allocate_on(0, total_bytes + (1 << 20)), c10::OutOfMemoryError);
  EXPECT_NE(allocate_on(0, 1024).get(), nullptr);
}

TEST(DeviceAllocatorTest, EmptyCacheReleasesSegments) {
  { const c10::DataPtr data = allocate_on(0, 64 << 20); }
  device_allocator()->emptyCache();
  const auto stats = device_allocator()->getDeviceStats(0);
  EXPECT_LT(stats.reserved_bytes[0].current, 64 << 20);
}

TEST(DeviceAllocatorTest, CopyData) {
  const c10::DataPtr source = allocate_on(0, 256);
  char host[256];
  std::memset(host, 7, sizeof(host));
  OPENREG_CHECK(orMemcpy(source.get(), host, sizeof(host), orMemcpyHostToDevice));
  const c10::DataPtr copy = device_allocator()->clone(source.get(), sizeof(host));
  std::memset(host, 0, sizeof(host));
  OPENREG_CHECK(orMemcpy(host, copy.get(), sizeof(host), orMemcpyDeviceToHost));
  for (const char byte : host) {
    EXPECT_EQ(byte, 7);
  }
}

TEST(HostAllocatorTest, MemoryIsPinnedAndUsable) {
  const c10::DataPtr data = pinned_allocator()->allocate(1000);
  EXPECT_TRUE(is_pinned(data.get()));
  EXPECT_TRUE(is_pinned(static_cast<char*>(data.get()) + 999));
  std::memset(data.get(), 1, 1000);
  int on_stack = 0;
  EXPECT_FALSE(is_pinned(&on_stack));
  EXPECT_EQ(at::getHostAllocator(kOpenRegType), pinned_allocator());
}

TEST(HostAllocatorTest, MemoryInUseByAStreamIsNotReused) {
  Gate gate;
  const c10::Stream stream = pooled_stream(0, 0);
  void* first = nullptr;
  {
    const c10::DataPtr data = pinned_allocator()->allocate(1 << 16);
    first = data.get();
    launch_gate(stream, &gate);
    EXPECT_TRUE(record_pinned_use(data, stream));
  }
  EXPECT_NE(pinned_allocator()->allocate(1 << 16).get(), first);
  gate.open = true;
  synchronize_stream(native_stream(stream));
  bool reused = false;
  for (int i = 0; i < 4 && !reused; ++i) {
    reused = pinned_allocator()->allocate(1 << 16).get() == first;
  }
  EXPECT_TRUE(reused);
}

TEST(HostAllocatorTest, PageableMemoryIsNotRecorded) {
  char byte = 0;
  const c10::DataPtr data(&byte, c10::Device(c10::kCPU));
  EXPECT_FALSE(record_pinned_use(data, default_stream(0)));
}

}  // namespace
}  // namespace openreg
