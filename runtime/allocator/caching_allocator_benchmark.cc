// SPDX-License-Identifier: BSD-3-Clause
//
// Measures the combined cost of a cached allocation and its free, compared with posix_memalign(64)
// and free.
//
//   pair   one block at a time
//   burst  64 blocks, freed in the order of allocation
//
// The benchmarks run with one thread, with two threads on separate streams, and with two threads on
// the same stream. They do not touch the memory. Run them on an otherwise idle machine.
//
//   ./bazelw run //runtime/allocator:caching_allocator_benchmark [-- --benchmark_filter=pair]
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/allocator/allocation_benchmark.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"

namespace openreg::allocator {
namespace {

constexpr size_t kPair = 1;
constexpr size_t kBurst = 64;

struct Device {
  FakeSource source;
  FakeTimeline timeline;
  CachingAllocator allocator{0, &source, &timeline};
};
// The device that all threads of one benchmark share.
std::unique_ptr<Device> device;

void make_device(const benchmark::State& /*state*/) { device = std::make_unique<Device>(); }
void drop_device(const benchmark::State& /*state*/) { device.reset(); }

struct Cached {
  using Piece = Block*;
  CachingAllocator* allocator;
  orStream_t stream;
  Piece allocate(size_t bytes) const { return allocator->allocate(bytes, stream); }
  void free(Piece block) const { allocator->free(block); }
};

void own_streams(benchmark::State& state, size_t burst) {
  const auto number = static_cast<uintptr_t>(state.thread_index()) + 1;
  allocate_and_free(state, Cached{&device->allocator, fake_stream(number)}, burst);
}

void one_stream(benchmark::State& state, size_t burst) {
  allocate_and_free(state, Cached{&device->allocator, fake_stream(1)}, burst);
}

void system_malloc(benchmark::State& state, size_t burst) {
  allocate_and_free(state, System(), burst);
}

void with_device(benchmark::internal::Benchmark* benchmark) {
  benchmark->Setup(make_device)->Teardown(drop_device)->Apply(measured_sizes)->UseRealTime();
}

BENCHMARK_CAPTURE(own_streams, pair, kPair)->Apply(with_device)->ThreadRange(1, 2);
BENCHMARK_CAPTURE(one_stream, pair, kPair)->Apply(with_device)->Threads(2);
BENCHMARK_CAPTURE(system_malloc, pair, kPair)
    ->Apply(measured_sizes)
    ->ThreadRange(1, 2)
    ->UseRealTime();
BENCHMARK_CAPTURE(own_streams, burst, kBurst)->Apply(with_device)->ThreadRange(1, 2);
BENCHMARK_CAPTURE(one_stream, burst, kBurst)->Apply(with_device)->Threads(2);
BENCHMARK_CAPTURE(system_malloc, burst, kBurst)
    ->Apply(measured_sizes)
    ->ThreadRange(1, 2)
    ->UseRealTime();

}  // namespace
}  // namespace openreg::allocator

BENCHMARK_MAIN();
