// SPDX-License-Identifier: BSD-3-Clause
//
// Measures how much more memory the allocator reserves on the device than programs request. It
// replays the allocations and frees of training runs (testdata/, written by
// //benchmarks:allocations). It prints the peaks of the requested bytes and of the segments.
//
//   ./bazelw run //runtime/allocator:fragmentation_benchmark
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"

namespace openreg::allocator {
namespace {

// Replays one file; benchmarks/allocations.py documents its format.
void replay(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("no file " + path);
  }
  FakeSource source;
  FakeTimeline timeline;
  CachingAllocator allocator(0, &source, &timeline);
  std::vector<Block*> blocks;
  size_t operations = 0;
  for (std::string line; std::getline(file, line); ++operations) {
    std::istringstream words(line.substr(1));
    size_t number = 0;
    uintptr_t stream = 0;
    words >> number;
    if (line[0] == '+') {
      words >> stream;
      blocks.push_back(allocator.allocate(number, fake_stream(stream + 1)));
    } else {
      allocator.free(blocks.at(number));
    }
  }
  const Stats stats = allocator.stats();
  const auto peak = [&](Quantity quantity) {
    return static_cast<double>(stats.stat[quantity][kAggregate].peak);
  };
  std::printf("%-20s %10zu %12.2f %12.2f %12.2f %10.2f\n", path.substr(path.rfind('/') + 1).c_str(),
              operations, peak(kRequestedBytes) / static_cast<double>(kMiB),
              peak(kAllocatedBytes) / static_cast<double>(kMiB),
              peak(kReservedBytes) / static_cast<double>(kMiB),
              peak(kReservedBytes) / peak(kAllocatedBytes));
}

}  // namespace
}  // namespace openreg::allocator

int main(int count, char** arguments) {
  std::printf("%-20s %10s %12s %12s %12s %10s\n", "peaks in MiB", "operations", "requested",
              "allocated", "reserved", "ratio");
  for (int i = 1; i < count; ++i) {
    openreg::allocator::replay(arguments[i]);
  }
  return 0;
}
