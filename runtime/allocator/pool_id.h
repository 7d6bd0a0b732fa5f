// SPDX-License-Identifier: BSD-3-Clause
//
// PoolId - identifies the part of a device's memory that an allocation comes from: the common
// memory, or a private pool (private_pool.h). It is the same type as torch's MempoolId_t.
#ifndef RUNTIME_ALLOCATOR_POOL_ID_H_
#define RUNTIME_ALLOCATOR_POOL_ID_H_

#include <cstdint>
#include <string>
#include <utility>

namespace openreg::allocator {

using PoolId = std::pair<uint64_t, uint64_t>;

inline constexpr PoolId kCommonPool{0, 0};

inline std::string to_string(PoolId id) {
  return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_POOL_ID_H_
