// SPDX-License-Identifier: BSD-3-Clause
//
// Block - the allocator's record of one piece of device memory, and what blocks hang together by.
//
// A segment is what one call of Source::allocate gave. It is divided into ranges, each with a
// block, linked in the order of their addresses. A range is free, handed out, or carries a slab: a
// run of equal small blocks. Records are on the host; nothing is ever written into the memory
// itself.
//
// Blocks belong to the pool of one stream and stay at their address until the allocator ends: one
// that is not needed any more waits in the pool's BlockStore for its next use. So any thread may
// read any block at any time (describe() does, in a signal handler); what can be read without the
// pool's lock is written by publish().
#ifndef RUNTIME_ALLOCATOR_BLOCK_H_
#define RUNTIME_ALLOCATOR_BLOCK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/allocator/stats.h"
#include "runtime/device/openreg.h"

namespace openreg::allocator {

class Pool;
struct Block;

enum class BlockState : uint8_t {
  kSpare,      // names no memory
  kFree,       // may be handed out
  kAllocated,  // belongs to the program
  kPending,    // freed, but other streams still use it
  kSlab,       // carries a slab; never handed out itself
};

struct Segment {
  void* base = nullptr;
  size_t size = 0;
  PoolType type = kSmallPool;
  int64_t uses = 0;    // ranges that are handed out or pending, slabs with such a block
  int64_t pieces = 0;  // ranges, a slab counted as its blocks
  Block* first = nullptr;
  uint64_t idle = 0;  // times that a pool grew since this was last in use; see CachingAllocator
};

// A run of blocks of one size class. It is linked in its class's list while it has a block to give.
struct Slab {
  Block* carrier = nullptr;  // the range that it divides
  Block* free = nullptr;     // blocks given back, the latest first
  int size_class = 0;
  uint32_t capacity = 0;  // blocks
  uint32_t cut = 0;       // blocks made so far: the first ones of the range
  uint32_t live = 0;      // blocks handed out or pending
  Slab* previous = nullptr;
  Slab* next = nullptr;
};

// 128 bytes; what allocate and free touch comes first.
struct alignas(64) Block {
  // For the owner of the block: constant from allocate() to free().
  void* pointer = nullptr;
  size_t size = 0;       // bytes that the owner may use: `requested`, rounded up
  size_t requested = 0;  // bytes that were asked for
  orStream_t stream = nullptr;
  int device = 0;

  // The allocator's own, guarded by the pool's lock.
  BlockState state = BlockState::kSpare;
  PoolType type = kSmallPool;
  Pool* pool = nullptr;        // constant
  Block* next_free = nullptr;  // in its slab, bin or store
  Block* previous_free = nullptr;
  Slab* slab = nullptr;        // of a block in a slab, else null
  Segment* segment = nullptr;  // of a range, else null
  Block* previous = nullptr;   // neighbours of a range in its segment
  Block* next = nullptr;
  // Other streams, from record_stream(). While the block is kPending only their number counts: of
  // the marks that have not passed.
  std::vector<orStream_t> users;
};
static_assert(sizeof(Block) == 128);

// Writes a field that other threads may read at any time.
template <class T>
inline void publish(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_relaxed);
}
template <class T>
inline T load(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_relaxed);
}

// The blocks of one pool that name no memory, and all the memory that blocks are made of. Guarded
// by the pool's lock, except for find().
class BlockStore {
 public:
  BlockStore(Pool* pool, orStream_t stream, int device)
      : pool_(pool), stream_(stream), device_(device) {}
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  Block* take() {
    if (spare_ == nullptr) [[unlikely]] {
      grow();
    }
    Block* block = spare_;
    spare_ = block->next_free;
    block->next_free = nullptr;
    return block;
  }
  void give(Block* block);

  // The block that names the byte at `pointer` and is not a slab's carrier, or null. Takes no lock
  // and touches only the blocks: fit for a signal handler. While other threads work it may
  // be wrong about memory that they allocate or free.
  const Block* find(const void* pointer) const;

  // The blocks that slabs are cut into, in the order of their addresses. Needs the pool's lock.
  std::vector<const Block*> slab_blocks() const;

 private:
  struct Chunk {
    std::array<Block, 63> blocks;
    Chunk* next = nullptr;
  };
  void grow();

  Pool* const pool_;
  const orStream_t stream_;
  const int device_;
  Block* spare_ = nullptr;
  std::atomic<Chunk*> chunks_{nullptr};  // owned
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_BLOCK_H_
