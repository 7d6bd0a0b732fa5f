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
#include <cstddef>
#include <cstdio>

#include "runtime/allocator/allocation_benchmark.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"

namespace openreg::allocator {
namespace {

constexpr size_t kBurst = 64;

struct Cached {
  using Piece = Block*;
  CachingAllocator* allocator;
  orStream_t stream;
  Piece allocate(size_t bytes) const { return allocator->allocate(bytes, stream); }
  void free(Piece block) const { allocator->free(block); }
};

void table(size_t burst) {
  std::printf(
      "\n%s, ns            1 thread                 2 threads, own streams       "
      "2 threads, one stream\n",
      burst == 1 ? "pair " : "burst");
  std::printf("%10s %10s %10s %6s %14s %10s %8s %14s\n", "bytes", "cached", "malloc", "share",
              "cached", "malloc", "scaling", "cached");
  for (const size_t bytes : kMeasuredSizes) {
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
