// SPDX-License-Identifier: BSD-3-Clause
//
// The figures of one caching allocator, with the names and meanings that torch's DeviceStats gives
// them.
#ifndef RUNTIME_ALLOCATOR_STATS_H_
#define RUNTIME_ALLOCATOR_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/allocator/pool_id.h"

namespace openreg::allocator {

struct Stat {
  int64_t current = 0;
  int64_t peak = 0;       // highest `current` since the start or reset_peak()
  int64_t allocated = 0;  // sum of all increases since the start or reset_accumulated()
  int64_t freed = 0;      // sum of all decreases, likewise
};

enum PoolType : uint8_t {
  kAggregate = 0,
  kSmallPool = 1,  // requests up to kLargestSmall bytes
  kLargePool = 2,
};
inline constexpr size_t kPoolTypes = 3;

// What a Stat is kept of, for each pool type.
enum Quantity : uint8_t {
  kAllocation,          // blocks that the program holds
  kSegment,             // pieces of memory taken from the device
  kActive,              // blocks held by the program or, after free, still used by other streams
  kInactiveSplit,       // free pieces of segments that have an active block, so cannot be released
  kAllocatedBytes,      // sizes of the blocks counted by kAllocation
  kReservedBytes,       // sizes of the segments
  kActiveBytes,         // sizes of the blocks counted by kActive
  kInactiveSplitBytes,  // sizes of the pieces counted by kInactiveSplit
  kRequestedBytes,      // what the program asked for in the blocks counted by kAllocation
};
inline constexpr size_t kQuantities = 9;

struct Stats {
  // stat[kReservedBytes][kAggregate].peak
  std::array<std::array<Stat, kPoolTypes>, kQuantities> stat{};
  int64_t num_alloc_retries = 0;     // the device had no room and cached memory was given up
  int64_t num_ooms = 0;              // OutOfMemoryErrors thrown
  int64_t num_sync_all_streams = 0;  // times that an allocation had to wait for streams
  int64_t num_device_alloc = 0;      // calls of Source::allocate that succeeded
  int64_t num_device_free = 0;       // calls of Source::free
  // Bytes of segments of each private pool, from its first segment until it ends.
  std::map<PoolId, std::array<Stat, kPoolTypes>> private_reserved;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_STATS_H_
