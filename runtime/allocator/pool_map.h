// SPDX-License-Identifier: BSD-3-Clause
//
// PoolMap - finds the pool of a stream. A lookup takes no lock and writes nothing, so threads do
// not contend. It costs one multiplication and almost always one comparison. Pools are never
// removed, and only one thread at a time may add a pool. A full table is replaced with one of twice
// the size. The old table is kept, because other threads may still be reading it.
#ifndef RUNTIME_ALLOCATOR_POOL_MAP_H_
#define RUNTIME_ALLOCATOR_POOL_MAP_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/allocator/pool.h"

namespace openreg::allocator {

class PoolMap {
 public:
  PoolMap() { grow(kFirstSize); }

  Pool* find(orStream_t stream) const {
    const Table* table = table_.load(std::memory_order_acquire);
    for (size_t slot = table->first_slot(stream);; slot = table->next_slot(slot)) {
      Pool* pool = table->slots[slot].load(std::memory_order_acquire);
      if (pool == nullptr || pool->stream() == stream) [[likely]] {
        return pool;
      }
    }
  }

  // Adds a pool. The map must not contain another pool for the same stream.
  void insert(Pool* pool) {
    ++count_;
    const Table* table = table_.load(std::memory_order_relaxed);
    if (const size_t size = table->slots.size(); count_ * 2 > size) {
      grow(size * 2);
    }
    tables_.back()->put(pool);
  }

 private:
  static constexpr size_t kFirstSize = 64;

  struct Table {
    explicit Table(size_t size) : shift(64 - std::countr_zero(size)), slots(size) {}
    size_t first_slot(orStream_t stream) const {
      return (reinterpret_cast<uintptr_t>(stream) * 0x9E3779B97F4A7C15U) >> shift;
    }
    size_t next_slot(size_t slot) const { return (slot + 1) & (slots.size() - 1); }
    void put(Pool* pool) {
      size_t slot = first_slot(pool->stream());
      while (slots[slot].load(std::memory_order_relaxed) != nullptr) {
        slot = next_slot(slot);
      }
      slots[slot].store(pool, std::memory_order_release);
    }
    const int shift;
    std::vector<std::atomic<Pool*>> slots;  // the size is a power of two
  };

  void grow(size_t size) {
    auto table = std::make_unique<Table>(size);
    if (const Table* old = table_.load(std::memory_order_relaxed); old != nullptr) {
      for (const std::atomic<Pool*>& slot : old->slots) {
        if (Pool* pool = slot.load(std::memory_order_relaxed); pool != nullptr) {
          table->put(pool);
        }
      }
    }
    table_.store(table.get(), std::memory_order_release);
    tables_.push_back(std::move(table));
  }

  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<const Table*> table_{nullptr};
  size_t count_ = 0;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_POOL_MAP_H_
