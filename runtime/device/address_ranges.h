// SPDX-License-Identifier: BSD-3-Clause
//
// address_ranges.h - the set of free address ranges in a window.
//
// Allocation is best fit. Among ranges of equal size, it uses the one with the lowest address.
// Freed neighbors are merged. The allocators that use this class request few, large blocks, so
// ordered trees are fast enough. Not thread-safe: the caller must hold a lock.
#ifndef RUNTIME_DEVICE_ADDRESS_RANGES_H_
#define RUNTIME_DEVICE_ADDRESS_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace openreg::device {

class AddressRanges {
 public:
  // Removes `size` bytes at a multiple of `alignment` from the set. Returns 0 if no range is large
  // enough.
  uintptr_t Allocate(size_t size, size_t alignment) {
    for (auto it = by_size_.lower_bound({size, 0}); it != by_size_.end(); ++it) {
      const auto [room, base] = *it;
      const uintptr_t start = (base + alignment - 1) / alignment * alignment;
      const size_t skipped = start - base;
      if (skipped > room || room - skipped < size) {
        continue;
      }
      Erase(base, room);
      if (skipped != 0) {
        Insert(base, skipped);
      }
      if (const size_t rest = room - skipped - size; rest != 0) {
        Insert(start + size, rest);
      }
      return start;
    }
    return 0;
  }

  // Adds a range to the set. The set must not contain any part of it.
  void Free(uintptr_t base, size_t size) {
    const auto next = by_base_.lower_bound(base);
    if (next != by_base_.begin()) {
      const auto [previous_base, previous_size] = *std::prev(next);
      if (previous_base + previous_size == base) {
        Erase(previous_base, previous_size);
        base = previous_base;
        size += previous_size;
      }
    }
    if (next != by_base_.end() && next->first == base + size) {
      const size_t next_size = next->second;
      Erase(base + size, next_size);
      size += next_size;
    }
    Insert(base, size);
  }

  // Returns the free ranges: a map from base address to size.
  const std::map<uintptr_t, size_t>& ranges() const { return by_base_; }
  size_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  void Insert(uintptr_t base, size_t size) {
    by_base_.emplace(base, size);
    by_size_.emplace(size, base);
  }
  void Erase(uintptr_t base, size_t size) {
    by_base_.erase(base);
    by_size_.erase({size, base});
  }

  std::map<uintptr_t, size_t> by_base_;
  std::set<std::pair<size_t, uintptr_t>> by_size_;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ADDRESS_RANGES_H_
