// SPDX-License-Identifier: BSD-3-Clause
//
// SegmentDescription - what one segment of the allocator looked like at one moment. A copy: it
// names memory, and owns and keeps none.
#ifndef RUNTIME_ALLOCATOR_SEGMENT_DESCRIPTION_H_
#define RUNTIME_ALLOCATOR_SEGMENT_DESCRIPTION_H_

#include <cstddef>
#include <vector>

#include "runtime/allocator/block.h"
#include "runtime/allocator/pool_id.h"
#include "runtime/allocator/stats.h"

namespace openreg::allocator {

struct BlockDescription {
  void* base = nullptr;
  size_t size = 0;
  size_t requested = 0;  // of a block that is allocated or pending, else 0
  // kFree, kAllocated, kPending, or kSlab: the end of a slab, which no block was cut from yet.
  BlockState state = BlockState::kFree;
};

struct SegmentDescription {
  void* base = nullptr;
  size_t size = 0;
  orStream_t stream = nullptr;
  PoolId pool = kCommonPool;
  PoolType type = kSmallPool;
  std::vector<BlockDescription> blocks;  // in the order of their addresses, without gaps
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SEGMENT_DESCRIPTION_H_
