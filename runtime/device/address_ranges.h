// SPDX-License-Identifier: BSD-3-Clause
//
// address_ranges.h - a set of free address ranges: what is left of a window to give out.
//
// Best fit, the lowest address among equals; neighbours grow together when they come back. The
// allocators above ask for few and large blocks, so ordered trees are fast enough. Not thread-safe:
// its owner has a lock.
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
  // Takes `size` bytes at a multiple of `alignment` out of the set; 0 when no range has room.
  uintptr_t Take(size_t size, size_t alignment) {
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

  // Puts a range, no part of which is in the set, into it.
  void Give(uintptr_t base, size_t size) {
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

  // Base and size of each range, by address.
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
