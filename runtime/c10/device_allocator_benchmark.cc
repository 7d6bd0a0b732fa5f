// SPDX-License-Identifier: BSD-3-Clause
//
// What an allocation and its free cost together, in one run: of the caching allocator (core), of
// the same as torch calls it (tensor memory with its deleter), of torch's CPU allocator, and of
// posix_memalign(64) and free. One block at a time, out of the cache; ns, use a quiet machine.
//   core/malloc   the part of malloc's cost that the caching allocator takes
//   device/cpu    the same of what a tensor of the device pays, and one of the CPU
//   scaling       how much more two threads on streams of their own get done than one: 2 is perfect
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstdio>

#include "runtime/allocator/allocation_benchmark.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

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

void table() {
  std::printf("%10s %8s %8s %8s %8s %12s %12s %14s %16s\n", "bytes", "core", "device", "cpu",
              "malloc", "core/malloc", "device/cpu", "core scaling", "device scaling");
  for (const size_t bytes : allocator::kMeasuredSizes) {
    const auto core = [&](size_t threads) {
      return allocator::with_threads(threads, [&](size_t) {
        return allocator::measure(Core{&caching_allocator(0), native_stream(pooled_stream(0, 0))},
                                  bytes, 1);
      });
    };
    const auto device = [&](size_t threads) {
      return allocator::with_threads(threads, [&](size_t) {
        exchange_stream(pooled_stream(0, 0));
        return allocator::measure(Tensors{device_allocator()}, bytes, 1);
      });
    };
    const double core_one = core(1);
    const double device_one = device(1);
    const double cpu = allocator::with_threads(
        1, [&](size_t) { return allocator::measure(Tensors{c10::GetCPUAllocator()}, bytes, 1); });
    const double malloc_one = allocator::with_threads(
        1, [&](size_t) { return allocator::measure(allocator::System(), bytes, 1); });
    std::printf("%10zu %8.1f %8.1f %8.1f %8.1f %12.2f %12.2f %14.2f %16.2f\n", bytes, core_one,
                device_one, cpu, malloc_one, core_one / malloc_one, device_one / cpu,
                2 * core_one / core(2), 2 * device_one / device(2));
  }
}

}  // namespace
}  // namespace openreg

int main() {
  openreg::initialize();
  openreg::table();
  return 0;
}
