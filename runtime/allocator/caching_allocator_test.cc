// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/caching_allocator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/allocator/caching_allocator_fixture.h"

namespace {

// Number of heap allocations by this thread; one test checks it.
thread_local int64_t heap_allocations = 0;

}  // namespace

// Counts allocations. Must not be inlined; otherwise the compiler warns about free() of memory from
// new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++heap_allocations;
  if (void* memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}

namespace openreg::allocator {
namespace {

TEST_F(CachingAllocatorTest, AllocatesAlignedMemoryOfEverySize) {
  std::vector<Block*> blocks;
  for (const size_t bytes : {1UL, 63UL, 64UL, 65UL, 4097UL, 262'144UL, 262'145UL, 1'048'576UL,
                             1'048'577UL, 10'485'760UL, 30'000'000UL}) {
    Block* block = allocator_.allocate(bytes, stream_);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->pointer) % kAlignment, 0U);
    EXPECT_GE(block->size, bytes);
    EXPECT_EQ(block->requested, bytes);
    EXPECT_EQ(block->device, 5);
    EXPECT_EQ(block->stream, stream_);
    std::memset(block->pointer, 1, block->size);  // the fake device has real memory
    blocks.push_back(block);
  }
  for (Block* block : blocks) {
    allocator_.free(block);
  }
}

TEST_F(CachingAllocatorTest, AFreedBlockIsReusedImmediatelyByItsStreamOnly) {
  for (const size_t bytes : {100UL, 300UL * kKiB, 5 * kMiB, 12 * kMiB}) {
    Block* block = allocator_.allocate(bytes, stream_);
    queue_and_free(block);
    Block* of_other = allocator_.allocate(bytes, other_);
    EXPECT_NE(of_other, block);
    EXPECT_NE(of_other->pointer, block->pointer);
    EXPECT_EQ(allocator_.allocate(bytes, stream_), block);
  }
  EXPECT_EQ(timeline_.waits(), 0);
}

TEST_F(CachingAllocatorTest, HotPathUsesNeitherHeapNorDevice) {
  const std::vector<size_t> sizes = {4, 100, 5000, 70'000, 400'000, 3'000'000, 15'000'000};
  std::vector<Block*> blocks(sizes.size());
  const auto pass = [&] {
    for (size_t i = 0; i < sizes.size(); ++i) {
      blocks[i] = allocator_.allocate(sizes[i], stream_);
    }
    for (Block* block : blocks) {
      allocator_.free(block);
    }
  };
  pass();
  const int64_t before = heap_allocations;
  const size_t segments = source_.segments().size();
  for (int i = 0; i < 1000; ++i) {
    pass();
  }
  EXPECT_EQ(heap_allocations, before);
  EXPECT_EQ(source_.segments().size(), segments);
  EXPECT_EQ(timeline_.waits(), 0);
}

TEST_F(CachingAllocatorTest, ANearlyFullDeviceGetsSegmentsThatJustFit) {
  Block* most = allocator_.allocate(90 * kMiB, stream_);
  // The device has no room for the usual segment of 20 MiB for the first request, or of 2 MiB for
  // the second.
  Block* some = allocator_.allocate(9 * kMiB, stream_);
  Block* rest = allocator_.allocate(100 * kKiB, stream_);
  EXPECT_EQ(source_.segments().size(), 3U);
  EXPECT_EQ(allocator_.stats().num_alloc_retries, 0);
  for (Block* block : {most, some, rest}) {
    allocator_.free(block);
  }
}

TEST_F(CachingAllocatorTest, OutOfMemoryReportsTheFigures) {
  Block* held = allocator_.allocate(60 * kMiB, stream_);
  Block* small = allocator_.allocate(2 * kMiB, stream_);  // leaves 18 MiB of its segment free
  try {
    allocator_.allocate(50 * kMiB, other_);
    FAIL() << "there is no room";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.code(), orErrorOutOfMemory);
    const auto& figures = error.figures();
    EXPECT_EQ(figures.device, 5);
    EXPECT_EQ(figures.asked, 50 * kMiB);
    EXPECT_EQ(figures.allocated, 62 * kMiB);
    EXPECT_EQ(figures.reserved, 80 * kMiB);
    EXPECT_EQ(figures.largest_free, 18 * kMiB);
    EXPECT_EQ(figures.device_free, 20 * kMiB);
    EXPECT_EQ(figures.device_total, 100 * kMiB);
    const std::string text = error.what();
    for (const char* part : {"openreg: device 5 is out of memory. Tried to allocate 50.00 MiB.",
                             "50.00 MiB", "62.00 MiB", "80.00 MiB", "18.00 MiB", "20.00 MiB",
                             "100.00 MiB", "the fake device is full", "OPENREG_DEVICE_MEMORY"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
  EXPECT_EQ(allocator_.stats().num_ooms, 1);
  // The allocator still works.
  allocator_.free(held);
  EXPECT_NE(allocator_.allocate(50 * kMiB, other_), nullptr);
  allocator_.free(small);
}

TEST_F(CachingAllocatorTest, HugeRequestsAreOutOfMemory) {
  for (const size_t bytes : {SIZE_MAX / 2, size_t{1} << 46}) {
    EXPECT_THROW(allocator_.allocate(bytes, stream_), OutOfMemoryError);
  }
  EXPECT_NE(allocator_.allocate(1, stream_), nullptr);
}

TEST_F(CachingAllocatorTest, NegativeSizesAreRefused) {
  for (const ptrdiff_t bytes : {ptrdiff_t{-1}, PTRDIFF_MIN}) {
    try {
      allocator_.allocate(static_cast<size_t>(bytes), stream_);
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), orErrorInvalidValue);
      EXPECT_EQ(std::string(error.what()).find("openreg: " + std::to_string(bytes) + " bytes"), 0u);
    }
  }
  EXPECT_EQ(allocator_.stats().num_ooms, 0);
}

TEST_F(CachingAllocatorTest, ARefusalDespiteEnoughMemoryDoesNotAdviseSmallerBatches) {
  class Refusing : public FakeSource {
    void* allocate(size_t /*size*/, std::string* reason) override {
      *reason = "the fake system refuses";
      return nullptr;
    }
  } refusing;
  CachingAllocator allocator(0, &refusing, &timeline_);
  try {
    allocator.allocate(1, stream_);
    FAIL() << "the source refuses";
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("The driver says: the fake system refuses."), std::string::npos) << text;
    EXPECT_NE(text.find("has enough free memory"), std::string::npos) << text;
    EXPECT_EQ(text.find("smaller batches"), std::string::npos) << text;
  }
}

TEST_F(CachingAllocatorTest, OtherErrorsOfTheSourceArePropagated) {
  class Broken : public FakeSource {
    void* allocate(size_t /*size*/, std::string* /*reason*/) override {
      throw Error(orErrorNotPermitted, "openreg: called from inside a kernel");
    }
  } broken;
  CachingAllocator allocator(0, &broken, &timeline_);
  try {
    allocator.allocate(1, stream_);
    FAIL() << "the source does not work";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), orErrorNotPermitted);
  }
  EXPECT_EQ(allocator.stats().num_ooms, 0);
}

TEST_F(CachingAllocatorTest, FreeingTwiceIsAnError) {
  Block* block = allocator_.allocate(100, stream_);
  allocator_.free(block);
  EXPECT_THROW(allocator_.free(block), Error);
  EXPECT_EQ(allocator_.allocate(100, stream_), block);
  EXPECT_NE(allocator_.allocate(100, stream_), block);
}

TEST_F(CachingAllocatorTest, DescribesMemoryInUseAndInTheCache) {
  CachingAllocator::Description found{};
  EXPECT_FALSE(allocator_.describe(&found, &found));
  for (const size_t bytes : {1000UL, 700'000UL, 5'000'000UL}) {
    Block* block = allocator_.allocate(bytes, stream_);
    auto* pointer = static_cast<char*>(block->pointer);
    ASSERT_TRUE(allocator_.describe(pointer + bytes - 1, &found));
    EXPECT_EQ(found.base, pointer);
    EXPECT_EQ(found.size, bytes);
    EXPECT_TRUE(found.in_use);
    allocator_.free(block);
    ASSERT_TRUE(allocator_.describe(pointer + 10, &found));
    EXPECT_EQ(found.base, pointer);
    EXPECT_FALSE(found.in_use);
    allocator_.empty_cache();
    EXPECT_FALSE(allocator_.describe(pointer, &found));
  }
}

TEST_F(CachingAllocatorTest, SeparatesThePoolsOfManyStreams) {
  std::vector<Block*> blocks;
  for (uintptr_t number = 1; number <= 1000; ++number) {
    blocks.push_back(allocator_.allocate(64, fake_stream(number % 40 + 1)));
  }
  EXPECT_EQ(source_.segments().size(), 40U);
  for (Block* block : blocks) {
    allocator_.free(block);
  }
  EXPECT_EQ(stat(kAllocation).peak, 1000);
  EXPECT_EQ(stat(kAllocation).current, 0);
}

TEST_F(CachingAllocatorTest, TheMapGrowsWithTheNumberOfStreams) {
  CachingAllocator allocator(0, &source_, &timeline_);
  for (uintptr_t number = 1; number <= 1500; ++number) {
    Block* block = allocator.allocate(64, fake_stream(number));
    EXPECT_EQ(block->stream, fake_stream(number));
    allocator.free(block);
    if (number % 40 == 0) {
      allocator.empty_cache();
    }
  }
  EXPECT_EQ(allocator.stats().stat[kAllocation][kAggregate].peak, 1);
}

TEST_F(CachingAllocatorTest, TheChildOfAForkGetsAnErrorAndDoesNotHang) {
  Block* block = allocator_.allocate(100, stream_);
  std::atomic<bool> stop{false};
  // This thread almost always holds the pool's lock, so the lock is probably held during the fork.
  std::thread busy([&] {
    while (!stop) {
      allocator_.free(allocator_.allocate(100, stream_));
    }
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      allocator_.free(block);
      allocator_.record_stream(block, other_);
      allocator_.empty_cache();
      allocator_.reset_peak();
      allocator_.reset_accumulated();
      (void)allocator_.stats();
      int result = 1;
      try {
        allocator_.allocate(100, stream_);
      } catch (const Error& error) {
        result = error.code() == orErrorForked ? 0 : 2;
      }
      _exit(result);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  busy.join();
  allocator_.free(block);
}

// Eight threads on four streams write to their blocks and pass blocks to each other. Each thread
// checks that no other thread has written to its blocks.
TEST_F(CachingAllocatorTest, EightThreadsShareFourStreams) {
  constexpr int kThreads = 8;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kSteps = 4'000;
#else
  constexpr int kSteps = 40'000;
#endif
  FakeSource source(64 * kMiB);
  CachingAllocator allocator(0, &source, &timeline_);
  // Blocks that one thread allocates and another thread frees.
  struct Exchange {
    std::mutex mutex;
    std::vector<std::pair<Block*, unsigned char>> blocks;
  } exchange;
  std::atomic<int> wrong{0};
  std::atomic<int64_t> allocated{0};
  std::latch start(kThreads);
  const auto check_and_free = [&](Block* block, unsigned char mark) {
    const auto* bytes = static_cast<const unsigned char*>(block->pointer);
    if (bytes[0] != mark || bytes[block->requested - 1] != mark) {
      ++wrong;
    }
    allocator.free(block);
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(static_cast<uint64_t>(thread));
      std::vector<std::pair<Block*, unsigned char>> held;
      start.arrive_and_wait();
      for (int step = 0; step < kSteps; ++step) {
        const orStream_t stream = fake_stream(random() % 4 + 1);
        if (random() % 2 == 0 && held.size() < 20) {
          const size_t bytes = random() % (size_t{1} << (random() % 22)) + 1;
          try {
            Block* block = allocator.allocate(bytes, stream);
            ++allocated;
            const auto mark = static_cast<unsigned char>(random());
            auto* memory = static_cast<unsigned char*>(block->pointer);
            memory[0] = mark;
            memory[bytes - 1] = mark;
            held.emplace_back(block, mark);
          } catch (const OutOfMemoryError&) {
            for (const auto& [block, mark] : held) {
              check_and_free(block, mark);
            }
            held.clear();
          }
        } else if (!held.empty()) {
          std::swap(held[random() % held.size()], held.back());
          auto entry = held.back();
          held.pop_back();
          if (random() % 4 == 0) {
            allocator.record_stream(entry.first, stream);
            timeline_.queue(stream);
          }
          if (random() % 4 == 0) {
            const std::lock_guard lock(exchange.mutex);
            exchange.blocks.push_back(entry);
            if (exchange.blocks.size() < kThreads) {
              continue;
            }
            std::swap(exchange.blocks[random() % exchange.blocks.size()], exchange.blocks.back());
            entry = exchange.blocks.back();
            exchange.blocks.pop_back();
          }
          check_and_free(entry.first, entry.second);
        }
        if (step % 64 == 0) {
          timeline_.run(stream, 100);
        }
        if (step % 1000 == 0) {
          allocator.empty_cache();
          const Stats stats = allocator.stats();
          const Stat& bytes = stats.stat[kAllocatedBytes][kAggregate];
          if (bytes.current < 0 || bytes.peak < bytes.current ||
              bytes.current > stats.stat[kReservedBytes][kAggregate].current) {
            ++wrong;
          }
        }
        CachingAllocator::Description found{};
        (void)allocator.describe(held.empty() ? nullptr : held.back().first->pointer, &found);
        if (!held.empty() && (found.base != held.back().first->pointer || !found.in_use)) {
          ++wrong;
        }
      }
      for (const auto& [block, mark] : held) {
        check_and_free(block, mark);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& [block, mark] : exchange.blocks) {
    check_and_free(block, mark);
  }
  EXPECT_EQ(wrong, 0);
  for (uintptr_t stream = 1; stream <= 4; ++stream) {
    timeline_.run(fake_stream(stream), INT64_MAX / 2);
  }
  allocator.empty_cache();
  const Stats stats = allocator.stats();
  EXPECT_EQ(stats.stat[kAllocation][kAggregate].current, 0);
  EXPECT_EQ(stats.stat[kAllocation][kAggregate].allocated, allocated);
  EXPECT_EQ(stats.stat[kActive][kAggregate].current, 0);
  EXPECT_EQ(stats.stat[kReservedBytes][kAggregate].current, 0);
  EXPECT_TRUE(source.segments().empty());
}

}  // namespace
}  // namespace openreg::allocator
