// SPDX-License-Identifier: BSD-3-Clause
//
// Tests memcheck on the emulated device. A test causes a fault with a fill that exceeds its block;
// the driver accepts this fill, because it only checks that a fill stays within its segment.
#include "runtime/allocator/memcheck.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/device_source.h"
#include "runtime/allocator/device_timeline.h"
#include "runtime/allocator/error.h"
#include "runtime/allocator/gate.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::allocator {
namespace {

constexpr size_t kDeviceMemory = 64 * kMiB;
using Fault = Memcheck::Fault;

// A program that allocates with memcheck.
class MemcheckTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(setenv("OPENREG_DEVICE_MEMORY", "64M", 1), 0);
    ASSERT_EQ(setenv("OPENREG_DEVICE_COUNT", "1", 1), 0);
  }

  void SetUp() override { start(4 * kMiB); }
  void TearDown() override { (void)orDeviceSynchronize(); }

  void start(size_t quarantine) {
    program_.reset();
    memcheck_ = std::make_unique<Memcheck>(0, quarantine);
    program_ = std::make_unique<CachingAllocator>(0, memcheck_->ledger(), &timeline_);
    ASSERT_EQ(orGetDefaultStream(&stream_, 0), orSuccess);
  }

  char* allocate(size_t bytes, orStream_t stream) {
    Block* block = program_->allocate(bytes, stream);
    char* pointer = nullptr;
    try {
      pointer = static_cast<char*>(memcheck_->allocate(block));
    } catch (...) {
      program_->free(block);
      throw;
    }
    blocks_[pointer] = block;
    return pointer;
  }
  char* allocate(size_t bytes) { return allocate(bytes, stream_); }

  void free(char* pointer) {
    Block* block = blocks_.at(pointer);
    memcheck_->free(block);
    program_->free(block);
    blocks_.erase(pointer);
  }

  void write(char* pointer, size_t bytes, orStream_t stream) {
    ASSERT_EQ(orMemsetAsync(pointer, 7, bytes, stream), orSuccess);
  }
  void write(char* pointer, size_t bytes) { write(pointer, bytes, stream_); }

  std::vector<Memcheck::Finding> found() {
    EXPECT_EQ(orDeviceSynchronize(), orSuccess);
    return memcheck_->take_findings();
  }

  orStream_t stream_ = nullptr;
  DeviceTimeline timeline_;
  std::unique_ptr<Memcheck> memcheck_;
  std::unique_ptr<CachingAllocator> program_;
  std::map<char*, Block*> blocks_;
};

TEST_F(MemcheckTest, FindsNothingInACorrectProgram) {
  for (int round = 0; round < 3; ++round) {
    std::vector<char*> pointers;
    for (const size_t bytes : {1UL, 63UL, 64UL, 65UL, 4096UL, 100'001UL, 2'000'000UL}) {
      char* pointer = allocate(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % kAlignment, 0U);
      write(pointer, bytes);
      pointers.push_back(pointer);
    }
    memcheck_->check();
    for (char* pointer : pointers) {
      free(pointer);
    }
  }
  memcheck_->check();
  memcheck_->empty_quarantine();
  EXPECT_TRUE(found().empty());
}

TEST_F(MemcheckTest, FindsAnOverrunWhenTheBlockIsFreed) {
  char* pointer = allocate(100);
  write(pointer + 98, 6);
  EXPECT_TRUE(found().empty());  // nothing was scanned yet
  free(pointer);
  const std::vector<Memcheck::Finding> findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].fault, Fault::kOverrun);
  EXPECT_EQ(findings[0].pointer, pointer);
  EXPECT_EQ(findings[0].bytes, 100U);
  EXPECT_EQ(findings[0].offset, 100);
  EXPECT_EQ(findings[0].changed, 4U);
}

TEST_F(MemcheckTest, FindsAnUnderrun) {
  char* pointer = allocate(100);
  write(pointer - 3, 5);
  free(pointer);
  const std::vector<Memcheck::Finding> findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].fault, Fault::kUnderrun);
  EXPECT_EQ(findings[0].offset, -3);
  EXPECT_EQ(findings[0].changed, 3U);
}

TEST_F(MemcheckTest, ScansHeldMemoryOnDemandAndReportsOnce) {
  char* pointer = allocate(5000);
  char* other = allocate(5000);
  write(pointer + 5000 + 17, 1);
  memcheck_->check(stream_);
  const std::vector<Memcheck::Finding> findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].pointer, pointer);
  EXPECT_EQ(findings[0].offset, 5017);
  EXPECT_EQ(findings[0].freed, nullptr);
  memcheck_->check();
  free(pointer);
  free(other);
  memcheck_->empty_quarantine();
  EXPECT_TRUE(found().empty());
}

TEST_F(MemcheckTest, OtherStreamsAreNotScanned) {
  orStream_t side = nullptr;
  ASSERT_EQ(orStreamCreate(&side), orSuccess);
  char* pointer = allocate(100, side);
  write(pointer + 100, 1, side);
  ASSERT_EQ(orDeviceSynchronize(), orSuccess);
  memcheck_->check(stream_);
  EXPECT_TRUE(found().empty());
  memcheck_->check(side);
  EXPECT_EQ(found().size(), 1U);
  free(pointer);
  ASSERT_EQ(orStreamDestroy(side), orSuccess);
}

TEST_F(MemcheckTest, FindsAWriteToFreedMemory) {
  char* pointer = allocate(10'000);
  free(pointer);
  write(pointer + 8000, 16);
  memcheck_->check();
  const std::vector<Memcheck::Finding> findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].fault, Fault::kUseAfterFree);
  EXPECT_EQ(findings[0].pointer, pointer);
  EXPECT_EQ(findings[0].bytes, 10'000U);
  EXPECT_EQ(findings[0].offset, 8000);
  EXPECT_EQ(findings[0].changed, 16U);
}

TEST_F(MemcheckTest, FindsAWriteWhenTheMemoryLeavesTheQuarantine) {
  start(100'000);
  char* pointer = allocate(60'000);
  free(pointer);
  write(pointer, 1);
  free(allocate(60'000));
  const std::vector<Memcheck::Finding> findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].fault, Fault::kUseAfterFree);
}

TEST_F(MemcheckTest, TheQuarantineIsBoundedAndMemoryIsReused) {
  start(kMiB);
  for (int round = 0; round < 1000; ++round) {
    free(allocate(300'000));
  }
  EXPECT_TRUE(found().empty());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ASSERT_EQ(orMemGetInfo(&free_bytes, &total_bytes), orSuccess);
  EXPECT_LE(total_bytes - free_bytes, 4 * kMiB);
}

TEST_F(MemcheckTest, MemoryInQuarantineIsPoisoned) {
  char* pointer = allocate(100);
  write(pointer, 100);
  free(pointer);
  ASSERT_EQ(orDeviceSynchronize(), orSuccess);
  std::vector<uint8_t> content(100);
  ASSERT_EQ(orMemcpy(content.data(), pointer, 100, orMemcpyDeviceToHost), orSuccess);
  EXPECT_EQ(content, std::vector<uint8_t>(100, Memcheck::kPoison));
}

TEST_F(MemcheckTest, WorkThatWasQueuedBeforeTheFreeMayUseTheMemory) {
  char* pointer = allocate(4096);
  {
    const Gate gate(stream_);
    write(pointer, 4096);
    free(pointer);
    memcheck_->check();
  }
  EXPECT_TRUE(found().empty());
}

TEST_F(MemcheckTest, MemoryThatAnotherStreamUsesWaitsForIt) {
  orStream_t side = nullptr;
  ASSERT_EQ(orStreamCreate(&side), orSuccess);
  char* pointer = allocate(4096);
  ASSERT_EQ(orDeviceSynchronize(), orSuccess);
  {
    const Gate gate(side);
    write(pointer, 4096, side);
    memcheck_->record_stream(blocks_.at(pointer), side);
    program_->record_stream(blocks_.at(pointer), side);
    free(pointer);
    free(allocate(100));
    memcheck_->check(stream_);
    ASSERT_EQ(orStreamSynchronize(stream_), orSuccess);
  }
  ASSERT_EQ(orStreamSynchronize(side), orSuccess);
  std::vector<uint8_t> content(4096);
  ASSERT_EQ(orMemcpy(content.data(), pointer, 4096, orMemcpyDeviceToHost), orSuccess);
  EXPECT_EQ(content, std::vector<uint8_t>(4096, 7));  // the block is not poisoned yet
  memcheck_->check();
  EXPECT_TRUE(found().empty());
  ASSERT_EQ(orMemcpy(content.data(), pointer, 4096, orMemcpyDeviceToHost), orSuccess);
  EXPECT_EQ(content, std::vector<uint8_t>(4096, Memcheck::kPoison));
  ASSERT_EQ(orStreamDestroy(side), orSuccess);
}

TEST_F(MemcheckTest, ChecksBlocksOfADestroyedStream) {
  orStream_t side = nullptr;
  ASSERT_EQ(orStreamCreate(&side), orSuccess);
  char* pointer = allocate(100, side);
  write(pointer + 100, 1, side);
  ASSERT_EQ(orStreamDestroy(side), orSuccess);
  free(pointer);
  EXPECT_EQ(found().size(), 1U);
  memcheck_->empty_quarantine();
}

TEST_F(MemcheckTest, AFreeDuringACaptureIsNotPartOfTheGraph) {
  orStream_t side = nullptr;
  ASSERT_EQ(orStreamCreate(&side), orSuccess);
  char* pointer = allocate(100, side);
  ASSERT_EQ(orDeviceSynchronize(), orSuccess);
  ASSERT_EQ(orStreamBeginCapture(side, orStreamCaptureModeRelaxed), orSuccess);
  free(pointer);
  memcheck_->check();
  orGraph_t graph = nullptr;
  ASSERT_EQ(orStreamEndCapture(side, &graph), orSuccess);
  size_t nodes = 1;
  EXPECT_EQ(orGraphGetNodeCount(graph, &nodes), orSuccess);
  EXPECT_EQ(nodes, 0U);
  EXPECT_EQ(orGraphDestroy(graph), orSuccess);
  ASSERT_EQ(orStreamSynchronize(side), orSuccess);
  memcheck_->check();
  ASSERT_EQ(orStreamSynchronize(side), orSuccess);
  memcheck_->check();
  EXPECT_TRUE(found().empty());
  std::vector<uint8_t> content(100);
  ASSERT_EQ(orMemcpy(content.data(), pointer, 100, orMemcpyDeviceToHost), orSuccess);
  EXPECT_EQ(content, std::vector<uint8_t>(100, Memcheck::kPoison));
  ASSERT_EQ(orStreamDestroy(side), orSuccess);
}

TEST_F(MemcheckTest, ABlockFreedBeforeACaptureIsNotPartOfTheGraph) {
  for (const bool destroyed : {false, true}) {
    start(4 * kMiB);
    orStream_t home = nullptr;
    orStream_t side = nullptr;
    ASSERT_EQ(orStreamCreate(&home), orSuccess);
    ASSERT_EQ(orStreamCreate(&side), orSuccess);
    char* pointer = allocate(100, home);
    ASSERT_EQ(orDeviceSynchronize(), orSuccess);
    const orStream_t captured = destroyed ? stream_ : home;  // the stream that runs the scan
    {
      const Gate gate(side);
      memcheck_->record_stream(blocks_.at(pointer), side);
      program_->record_stream(blocks_.at(pointer), side);
      free(pointer);
      if (destroyed) {
        ASSERT_EQ(orStreamDestroy(home), orSuccess);
      }
      ASSERT_EQ(orStreamBeginCapture(captured, orStreamCaptureModeRelaxed), orSuccess);
    }
    ASSERT_EQ(orStreamSynchronize(side), orSuccess);
    memcheck_->check();
    orGraph_t graph = nullptr;
    ASSERT_EQ(orStreamEndCapture(captured, &graph), orSuccess) << orGetLastErrorDetail();
    size_t nodes = 1;
    EXPECT_EQ(orGraphGetNodeCount(graph, &nodes), orSuccess);
    EXPECT_EQ(nodes, 0U);
    EXPECT_EQ(orGraphDestroy(graph), orSuccess);
    memcheck_->check();
    EXPECT_TRUE(found().empty());
    std::vector<uint8_t> content(100);
    ASSERT_EQ(orMemcpy(content.data(), pointer, 100, orMemcpyDeviceToHost), orSuccess);
    EXPECT_EQ(content, std::vector<uint8_t>(100, Memcheck::kPoison));
    ASSERT_EQ(orStreamDestroy(side), orSuccess);
    if (!destroyed) {
      ASSERT_EQ(orStreamDestroy(home), orSuccess);
    }
  }
}

// A scope in which no thread can be started.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(pthread_attr_init(&huge), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    EXPECT_EQ(pthread_attr_destroy(&huge), 0);
  }
  ~NoMoreThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    EXPECT_EQ(pthread_attr_destroy(&before_), 0);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST_F(MemcheckTest, ARefusedScanLosesNothing) {
  size_t free_before = 0;
  size_t free_after = 0;
  size_t total = 0;
  ASSERT_EQ(orMemGetInfo(&free_before, &total), orSuccess);
  orStream_t side = nullptr;
  ASSERT_EQ(orStreamCreate(&side), orSuccess);
  char* first = allocate(100, side);
  char* second = allocate(3 * kMiB);
  ASSERT_EQ(orDeviceSynchronize(), orSuccess);
  write(first + 100, 1, side);  // a fault that must be reported despite the failed launch
  // Run a kernel inline until `open` is set. A kernel that is launched during that time is queued
  // and needs a worker thread.
  std::atomic<bool> entered{false};
  std::atomic<bool> open{false};
  std::thread launcher([&] {
    const orLaunchAttributes cheap{"gate", orLaunchInline, 0, nullptr};
    std::atomic<bool>* arguments[] = {&entered, &open};
    EXPECT_EQ(orLaunchKernel(
                  side,
                  [](void* raw) {
                    auto* const flags = static_cast<std::atomic<bool>**>(raw);
                    *flags[0] = true;
                    while (!*flags[1]) {
                      std::this_thread::yield();
                    }
                    return orSuccess;
                  },
                  static_cast<void*>(arguments), sizeof(arguments), &cheap),
              orSuccess);
  });
  while (!entered) {
    std::this_thread::yield();
  }
  {
    const NoMoreThreads none;
    try {
      memcheck_->free(blocks_.at(first));
      ADD_FAILURE() << "no thread should start";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), orErrorSystem);
    }
    EXPECT_THROW(memcheck_->free(blocks_.at(second)), Error);
  }
  open = true;
  launcher.join();
  program_->free(blocks_.at(first));
  program_->free(blocks_.at(second));
  memcheck_->check();
  EXPECT_EQ(found().size(), 1U);
  memcheck_->empty_quarantine();
  ASSERT_EQ(orMemGetInfo(&free_after, &total), orSuccess);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(orStreamDestroy(side), orSuccess);
}

TEST_F(MemcheckTest, StatisticsAreThoseOfAProgramWithoutMemcheck) {
  DeviceSource source(0);
  size_t free_at_first = 0;
  {
    size_t total = 0;
    ASSERT_EQ(orMemGetInfo(&free_at_first, &total), orSuccess);
  }
  const auto run = [](CachingAllocator& allocator, const auto& give, const auto& take) {
    std::vector<void*> pointers;
    for (const size_t bytes : {100UL, 3000UL, 300'000UL, 5'000'000UL}) {
      pointers.push_back(give(bytes));
    }
    take(pointers[1]);
    take(pointers[3]);
    take(give(5'000'000));
    Stats stats = allocator.stats();
    take(pointers[0]);
    take(pointers[2]);
    return stats;
  };
  std::map<void*, Block*> blocks;
  CachingAllocator plain(0, &source, &timeline_);
  const Stats expected = run(
      plain,
      [&](size_t bytes) -> void* {
        Block* block = plain.allocate(bytes, stream_);
        blocks[block->pointer] = block;
        return block->pointer;
      },
      [&](void* pointer) { plain.free(blocks.at(pointer)); });
  plain.empty_cache();
  const Stats stats = run(
      *program_, [&](size_t bytes) -> void* { return allocate(bytes); },
      [&](void* pointer) { free(static_cast<char*>(pointer)); });
  for (size_t quantity = 0; quantity < kQuantities; ++quantity) {
    for (const PoolType type : {kAggregate, kSmallPool, kLargePool}) {
      const Stat& one = stats.stat[quantity][type];
      const Stat& other = expected.stat[quantity][type];
      EXPECT_EQ(one.current, other.current) << quantity;
      EXPECT_EQ(one.peak, other.peak) << quantity;
      EXPECT_EQ(one.allocated, other.allocated) << quantity;
      EXPECT_EQ(one.freed, other.freed) << quantity;
    }
  }
  const size_t reserved =
      static_cast<size_t>(program_->stats().stat[kReservedBytes][kAggregate].current);
  EXPECT_EQ(memcheck_->ledger()->room().free, free_at_first - reserved);
  program_->empty_cache();
  EXPECT_EQ(memcheck_->ledger()->room().free, free_at_first);
}

TEST_F(MemcheckTest, TheQuarantineDoesNotMakeTheDeviceSmaller) {
  start(kDeviceMemory);
  for (int round = 0; round < 20; ++round) {
    char* pointer = allocate(20 * kMiB);
    write(pointer, 20 * kMiB);
    free(pointer);
  }
  EXPECT_TRUE(found().empty());
  EXPECT_THROW(allocate(kDeviceMemory + 1), OutOfMemoryError);
  free(allocate(40 * kMiB));
  EXPECT_EQ(program_->stats().stat[kAllocation][kAggregate].current, 0);
}

TEST_F(MemcheckTest, ItsOwnOutOfMemoryErrorLeavesAConsistentState) {
  // The block fits into the device, but not with its zones.
  EXPECT_THROW(allocate(kDeviceMemory), OutOfMemoryError);
  EXPECT_EQ(program_->stats().stat[kAllocation][kAggregate].current, 0);
  free(allocate(kMiB));
  EXPECT_TRUE(found().empty());
}

TEST_F(MemcheckTest, BlocksMayBeFreedByTheDevice) {
  char* pointer = allocate(100);
  write(pointer + 100, 2);
  ASSERT_EQ(orLaunchKernel(stream_, [this, pointer] { memcheck_->free(blocks_.at(pointer)); }),
            orSuccess);
  ASSERT_EQ(orDeviceSynchronize(), orSuccess);
  EXPECT_TRUE(memcheck_->held().empty());
  memcheck_->check();
  EXPECT_EQ(found().size(), 1U);
  program_->free(blocks_.at(pointer));
}

TEST_F(MemcheckTest, PrivatePoolsAreNotChecked) {
  const PoolId id{0, 1};
  const auto in_pool = [&](auto&& function) {
    program_->begin_allocate_to_pool(id, [](orStream_t) { return true; });
    function();
    program_->end_allocate_to_pool(id);
  };
  char* pointer = nullptr;
  in_pool([&] { pointer = allocate(1000); });
  EXPECT_TRUE(memcheck_->held().empty());
  free(pointer);
  write(pointer, 1000);  // a replayed graph may write to freed memory like this
  memcheck_->check();
  EXPECT_TRUE(found().empty());
  in_pool([&] { EXPECT_EQ(allocate(1000), pointer); });
  free(pointer);
  program_->release_pool(id);
  program_->release_pool(id);
  program_->empty_cache();
  EXPECT_FALSE(program_->pool_exists(id));
  EXPECT_EQ(orMemsetAsync(pointer, 0, 1000, stream_), orErrorInvalidDevicePointer);
}

TEST_F(MemcheckTest, ReportsWhereBlocksWereAllocatedAndFreed) {
  const auto here = std::make_shared<int>(0);
  const auto there = std::make_shared<int>(0);
  char* pointer = nullptr;
  {
    const ContextScope scope(here);
    pointer = allocate(100);
  }
  ASSERT_EQ(memcheck_->held().size(), 1U);
  EXPECT_EQ(memcheck_->held()[0].pointer, pointer);
  EXPECT_EQ(memcheck_->held()[0].bytes, 100U);
  EXPECT_EQ(memcheck_->held()[0].allocated, here);
  {
    const ContextScope scope(there);
    free(pointer);
  }
  EXPECT_TRUE(memcheck_->held().empty());
  write(pointer, 1);
  memcheck_->check();
  const std::vector<Memcheck::Finding> findings = found();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].allocated, here);
  EXPECT_EQ(findings[0].freed, there);
}

TEST_F(MemcheckTest, DescribesAddresses) {
  char* pointer = allocate(1000);
  CachingAllocator::Description found;
  ASSERT_TRUE(memcheck_->describe(pointer + 999, &found));
  EXPECT_EQ(found.base, pointer);
  EXPECT_EQ(found.size, 1000U);
  EXPECT_TRUE(found.in_use);
  free(pointer);
  ASSERT_TRUE(memcheck_->describe(pointer + 999, &found));
  EXPECT_EQ(found.base, pointer);
  EXPECT_EQ(found.size, 1000U);
  EXPECT_FALSE(found.in_use);
  EXPECT_FALSE(memcheck_->describe(&found, &found));
}

TEST_F(MemcheckTest, ThreadsUseSeparateStreams) {
  start(kMiB);
  std::vector<orStream_t> streams(4);
  for (orStream_t& stream : streams) {
    ASSERT_EQ(orStreamCreate(&stream), orSuccess);
  }
  {
    std::vector<std::jthread> threads;
    for (const orStream_t stream : streams) {
      threads.emplace_back([&, stream] {
        for (size_t round = 0; round < 300; ++round) {
          const size_t bytes = 1 + round * 37 % 5000;
          Block* block = program_->allocate(bytes, stream);
          auto* pointer = static_cast<char*>(memcheck_->allocate(block));
          EXPECT_EQ(orMemsetAsync(pointer, 7, bytes, stream), orSuccess);
          if (round % 50 == 0) {
            memcheck_->check();
          }
          memcheck_->free(block);
          program_->free(block);
        }
      });
    }
  }
  EXPECT_TRUE(found().empty());
  memcheck_->empty_quarantine();
  for (const orStream_t stream : streams) {
    ASSERT_EQ(orStreamDestroy(stream), orSuccess);
  }
}

}  // namespace
}  // namespace openreg::allocator
