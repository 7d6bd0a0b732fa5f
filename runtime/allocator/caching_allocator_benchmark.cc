// SPDX-License-Identifier: BSD-3-Clause
//
// What an allocation and its free cost together, out of the cache, against posix_memalign(64) and
// free.
//   pair   one block at a time
//   burst  64 blocks, freed in the order of allocation
// with one thread, two threads on streams of their own and two threads on one stream. The memory is
// not touched. Wall time of the slower thread, median of several rounds: use a quiet machine.
//   share    cached, as a part of malloc, one thread
//   scaling  how much more two threads on streams of their own get done than one: 2 is perfect
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"

namespace openreg::allocator {
namespace {

constexpr int kRounds = 25;
constexpr size_t kBurst = 64;
constexpr int kPairs = 50'000;

using Clock = std::chrono::steady_clock;

struct Cached {
  using Piece = Block*;
  CachingAllocator* allocator;
  orStream_t stream;
  Piece allocate(size_t bytes) const { return allocator->allocate(bytes, stream); }
  void free(Piece block) const { allocator->free(block); }
};

struct System {
  using Piece = void*;
  static Piece allocate(size_t bytes) {
    void* piece = nullptr;
    if (posix_memalign(&piece, 64, bytes) != 0) {
      std::abort();
    }
    return piece;
  }
  static void free(Piece piece) { ::free(piece); }
};

// Nanoseconds for one allocation and its free.
template <class Memory>
double measure(const Memory& memory, size_t bytes, size_t burst) {
  std::vector<typename Memory::Piece> pieces(burst);
  const auto pass = [&] {
    for (auto& piece : pieces) {
      piece = memory.allocate(bytes);
    }
    for (auto& piece : pieces) {
      memory.free(piece);
    }
  };
  pass();
  // malloc maps and unmaps large memory each time.
  const int passes = (bytes > kMiB ? kPairs / 50 : kPairs) / static_cast<int>(burst);
  const auto start = Clock::now();
  for (int i = 0; i < passes; ++i) {
    pass();
  }
  const std::chrono::duration<double, std::nano> time = Clock::now() - start;
  return time.count() / passes / static_cast<double>(burst);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int>(values.size() / 2));
  return values[values.size() / 2];
}

double with_threads(size_t threads, const std::function<double(size_t thread)>& run) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> times(threads);
    std::latch start(static_cast<std::ptrdiff_t>(threads));
    std::vector<std::jthread> workers;
    for (size_t thread = 0; thread < threads; ++thread) {
      workers.emplace_back([&, thread] {
        start.arrive_and_wait();
        times[thread] = run(thread);
      });
    }
    workers.clear();
    rounds.push_back(*std::ranges::max_element(times));
  }
  return median(rounds);
}

void table(size_t burst) {
  std::printf(
      "\n%s, ns            1 thread                 2 threads, own streams       "
      "2 threads, one stream\n",
      burst == 1 ? "pair " : "burst");
  std::printf("%10s %10s %10s %6s %14s %10s %8s %14s\n", "bytes", "cached", "malloc", "share",
              "cached", "malloc", "scaling", "cached");
  for (const size_t bytes :
       std::array<size_t, 8>{4, 512, 4096, 65536, 262144, 1048576, 4194304, 67108864}) {
    const auto cached = [&](size_t threads, bool one_stream) {
      FakeSource source;
      FakeTimeline timeline;
      CachingAllocator allocator(0, &source, &timeline);
      return with_threads(threads, [&](size_t thread) {
        return measure(Cached{&allocator, fake_stream(one_stream ? 1 : thread + 1)}, bytes, burst);
      });
    };
    const auto system = [&](size_t threads) {
      return with_threads(threads, [&](size_t) { return measure(System(), bytes, burst); });
    };
    const double one = cached(1, true);
    const double malloc_one = system(1);
    const double two = cached(2, false);
    std::printf("%10zu %10.1f %10.1f %6.2f %14.1f %10.1f %8.2f %14.1f\n", bytes, one, malloc_one,
                one / malloc_one, two, system(2), 2 * one / two, cached(2, true));
  }
}

}  // namespace
}  // namespace openreg::allocator

int main() {
  openreg::allocator::table(1);
  openreg::allocator::table(openreg::allocator::kBurst);
  return 0;
}
