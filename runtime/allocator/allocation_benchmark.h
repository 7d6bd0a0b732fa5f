// SPDX-License-Identifier: BSD-3-Clause
//
// allocation_benchmark.h - how benchmarks measure what an allocation and its free cost together.
// The memory is not touched.
//
// A Memory has a type Piece and functions `Piece allocate(size_t bytes)` and `void free(Piece)`.
#ifndef RUNTIME_ALLOCATOR_ALLOCATION_BENCHMARK_H_
#define RUNTIME_ALLOCATOR_ALLOCATION_BENCHMARK_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/allocator/size_class.h"

namespace openreg::allocator {

// Of each of the allocator's ways, and one that the system maps anew each time.
constexpr std::array<size_t, 8> kMeasuredSizes = {4,      512,     4096,    65536,
                                                  262144, 1048576, 4194304, 67108864};

// What malloc takes for memory of the same alignment.
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

// Nanoseconds for one allocation and its free: `burst` blocks at a time, in the order of their
// allocation.
template <class Memory>
double measure(const Memory& memory, size_t bytes, size_t burst) {
  std::vector<typename Memory::Piece> pieces(burst);
  const auto pass = [&] {
    for (auto& piece : pieces) {
      piece = memory.allocate(bytes);
    }
    for (auto& piece : pieces) {
      memory.free(std::move(piece));
    }
  };
  pass();
  constexpr int kPairs = 50'000;
  // malloc maps and unmaps large memory each time.
  const int passes = (bytes > kMiB ? kPairs / 50 : kPairs) / static_cast<int>(burst);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < passes; ++i) {
    pass();
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / passes / static_cast<double>(burst);
}

inline double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int>(values.size() / 2));
  return values[values.size() / 2];
}

// The median of several rounds, of the slower thread.
inline double with_threads(size_t threads, const std::function<double(size_t thread)>& run) {
  constexpr int kRounds = 25;
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

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_ALLOCATION_BENCHMARK_H_
