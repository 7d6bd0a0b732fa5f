// SPDX-License-Identifier: BSD-3-Clause
//
// Measures the combined cost of an allocation and its free, in one run, for four allocators: the
// caching allocator core, the core through torch (tensor memory with its deleter), torch's CPU
// allocator, and posix_memalign(64) with free. It allocates one block at a time, from the cache.
// With two threads, each thread has its own stream. Run it on an otherwise idle machine.
//
//   ./bazelw run //runtime/c10:device_allocator_benchmark [-- --benchmark_filter=bytes:512]
#include <benchmark/benchmark.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>

#include "runtime/allocator/allocation_benchmark.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

constexpr size_t kPair = 1;

struct Core {
  using Piece = allocator::Block*;
  allocator::CachingAllocator* allocator;
  orStream_t stream;
  Piece allocate(size_t bytes) const { return allocator->allocate(bytes, stream); }
  void free(Piece block) const { allocator->free(block); }
};

struct Tensors {
  using Piece = c10::DataPtr;
  c10::Allocator* allocator;
  Piece allocate(size_t bytes) const { return allocator->allocate(bytes); }
  static void free(Piece piece) { piece.clear(); }
};

void core(benchmark::State& state) {
  const orStream_t stream = native_stream(pooled_stream(0, 0));
  allocator::allocate_and_free(state, Core{&caching_allocator(0), stream}, kPair);
}

void device(benchmark::State& state) {
  exchange_stream(pooled_stream(0, 0));
  allocator::allocate_and_free(state, Tensors{device_allocator()}, kPair);
}

void cpu(benchmark::State& state) {
  allocator::allocate_and_free(state, Tensors{c10::GetCPUAllocator()}, kPair);
}

void system_malloc(benchmark::State& state) {
  allocator::allocate_and_free(state, allocator::System(), kPair);
}

BENCHMARK(core)->Apply(allocator::measured_sizes)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(device)->Apply(allocator::measured_sizes)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(cpu)->Apply(allocator::measured_sizes)->UseRealTime();
BENCHMARK(system_malloc)->Apply(allocator::measured_sizes)->UseRealTime();

}  // namespace
}  // namespace openreg

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  openreg::initialize();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
