// SPDX-License-Identifier: BSD-3-Clause
//
// SegmentDescription - a snapshot of one of the allocator's segments. It contains addresses, but
// does not own the memory or keep it allocated.
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
  size_t requested = 0;  // for an allocated or pending block; otherwise 0
  // The block's state: kFree, kAllocated, kPending or kSlab. kSlab marks the end of a slab, where
  // no blocks have been created yet.
  BlockState state = BlockState::kFree;
};

struct SegmentDescription {
  void* base = nullptr;
  size_t size = 0;
  orStream_t stream = nullptr;
  PoolId pool = kCommonPool;
  PoolType type = kSmallPool;
  std::vector<BlockDescription> blocks;  // in address order, without gaps
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_SEGMENT_DESCRIPTION_H_
