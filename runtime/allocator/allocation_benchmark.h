// SPDX-License-Identifier: BSD-3-Clause
//
// allocation_benchmark.h - code for the benchmarks that measure the combined cost of an allocation
// and its free. They do not touch the memory.
//
// The template parameter Memory must define a type Piece and the functions `Piece allocate(size_t
// bytes)` and `void free(Piece)`.
#ifndef RUNTIME_ALLOCATOR_ALLOCATION_BENCHMARK_H_
#define RUNTIME_ALLOCATOR_ALLOCATION_BENCHMARK_H_

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace openreg::allocator {

// Registers one size for each path through the allocator, and one size that malloc maps on every
// call.
inline void measured_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes");
  for (const int64_t bytes : {4, 512, 4096, 65536, 262144, 1048576, 4194304, 67108864}) {
    benchmark->Arg(bytes);
  }
}

// A Memory for comparison: the system allocator, with the same alignment.
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

// Measures iterations that each allocate `burst` blocks and free them in the same order.
// items_per_second counts the blocks of all threads.
template <class Memory>
void allocate_and_free(benchmark::State& state, const Memory& memory, size_t burst) {
  const auto bytes = static_cast<size_t>(state.range(0));
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
  while (state.KeepRunningBatch(static_cast<int64_t>(burst))) {
    pass();
  }
  state.SetItemsProcessed(state.iterations());
}

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_ALLOCATION_BENCHMARK_H_
