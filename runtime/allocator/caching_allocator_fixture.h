// SPDX-License-Identifier: BSD-3-Clause
//
// CachingAllocatorTest - a fixture with a caching allocator over the fake device, for the tests of
// the allocator's parts.
#ifndef RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_FIXTURE_H_
#define RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_device.h"
#include "runtime/allocator/size_class.h"

namespace openreg::allocator {

class CachingAllocatorTest : public testing::Test {
 protected:
  static constexpr size_t kCapacity = 100 * kMiB;

  const Stat& stat(Quantity quantity, PoolType type = kAggregate) {
    stats_ = allocator_.stats();
    return stats_.stat[quantity][type];
  }
  // Frees a block while its stream has work, so that the allocator has something to wait for.
  void queue_and_free(Block* block) {
    timeline_.queue(block->stream);
    allocator_.free(block);
  }

  const orStream_t stream_ = fake_stream(1);
  const orStream_t other_ = fake_stream(2);
  FakeSource source_{kCapacity};
  FakeTimeline timeline_;
  CachingAllocator allocator_{5, &source_, &timeline_};
  Stats stats_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_CACHING_ALLOCATOR_FIXTURE_H_
