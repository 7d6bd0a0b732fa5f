// SPDX-License-Identifier: BSD-3-Clause
//
// The statistics of one caching allocator, with the names and meanings of torch's DeviceStats.
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
  int64_t freed = 0;      // sum of all decreases in the same period
};

enum PoolType : uint8_t {
  kAggregate = 0,
  kSmallPool = 1,  // requests of up to kLargestSmall bytes
  kLargePool = 2,
};
inline constexpr size_t kPoolTypes = 3;

// The quantities for which a Stat is kept per pool type.
enum Quantity : uint8_t {
  kAllocation,      // blocks that the program owns
  kSegment,         // segments allocated from the device
  kActive,          // blocks owned by the program or, after their free, still used by other streams
  kInactiveSplit,   // free pieces of segments that also have an active block
  kAllocatedBytes,  // sizes of the blocks counted by kAllocation
  kReservedBytes,   // sizes of the segments
  kActiveBytes,     // sizes of the blocks counted by kActive
  kInactiveSplitBytes,  // sizes of the pieces counted by kInactiveSplit
  kRequestedBytes,      // requested bytes of the blocks counted by kAllocation
};
inline constexpr size_t kQuantities = 9;

struct Stats {
  // Example: stat[kReservedBytes][kAggregate].peak
  std::array<std::array<Stat, kPoolTypes>, kQuantities> stat{};
  // How often cached memory was returned because the device had no room.
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;              // number of OutOfMemoryErrors thrown
  int64_t num_sync_all_streams = 0;  // how often an allocation had to wait for streams
  int64_t num_device_alloc = 0;      // number of successful calls to Source::allocate
  int64_t num_device_free = 0;       // number of calls to Source::free
  // The size in bytes of each private pool's segments, from its first segment until the pool ends.
  std::map<PoolId, std::array<Stat, kPoolTypes>> private_reserved;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_STATS_H_
