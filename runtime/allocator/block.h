// SPDX-License-Identifier: BSD-3-Clause
//
// Block - the allocator's record of one piece of device memory, with the Segment and Slab that link
// blocks.
//
// A segment is the memory returned by one call to Source::allocate. It is divided into ranges in
// address order, and each range has a block. A range is free, handed out, or the carrier of a slab.
// A slab is a run of small blocks of equal size. All records are in host memory; the allocator
// never writes to the device memory itself.
//
// A block belongs to one stream's pool and keeps its address until the allocator is destroyed: when
// it is unused, the pool's BlockStore keeps it for reuse. Any thread may therefore read any block
// at any time (describe() does so in a signal handler). Fields that are read without the pool's
// lock are written with publish().
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
  kSpare,      // a record without memory, stored in the BlockStore
  kFree,       // memory that may be handed out
  kAllocated,  // memory that the program owns
  kPending,    // freed memory that other streams still use
  kSlab,       // the carrier of a slab, which itself is never handed out
};

struct Segment {
  void* base = nullptr;
  size_t size = 0;
  PoolType type = kSmallPool;
  // Number of ranges that are handed out or pending, or are slabs with such blocks.
  int64_t uses = 0;
  int64_t pieces = 0;  // number of ranges, where a slab counts as the number of its blocks
  Block* first = nullptr;
  uint64_t idle = 0;  // number of times that a pool grew since the segment was last used
};

// A run of blocks in one size class. The list of its class contains the slab while the slab has a
// free block.
struct Slab {
  Block* carrier = nullptr;  // the range that the slab divides
  Block* free = nullptr;     // freed blocks, most recently freed first
  int size_class = 0;
  uint32_t capacity = 0;  // number of blocks that fit
  uint32_t cut = 0;       // number of blocks created so far, at the start of the range
  uint32_t live = 0;      // number of blocks handed out or pending
  Slab* previous = nullptr;
  Slab* next = nullptr;
};

// The record of a piece of memory. It occupies 128 bytes. The fields that allocate and free access
// come first.
struct alignas(64) Block {
  // Members for the block's owner. They do not change between allocate() and free().
  void* pointer = nullptr;
  size_t size = 0;       // bytes that the owner may use: `requested` rounded up
  size_t requested = 0;  // bytes that the owner requested
  orStream_t stream = nullptr;
  int device = 0;

  // Members for the allocator, guarded by the pool's lock.
  BlockState state = BlockState::kSpare;
  PoolType type = kSmallPool;
  Pool* pool = nullptr;        // never changes
  Block* next_free = nullptr;  // in the free list of its slab, bin or store
  Block* previous_free = nullptr;
  Slab* slab = nullptr;        // the slab that contains this block, or null
  Segment* segment = nullptr;  // the segment of this range; null for a slab's block
  Block* previous = nullptr;   // neighbors of a range in its segment
  Block* next = nullptr;
  // The other streams that use the block, from record_stream(). While the block is kPending, only
  // the number of elements matters: it is the number of marks that have not passed.
  std::vector<orStream_t> users;
};
static_assert(sizeof(Block) == 128);

// Writes a field that other threads may read at any time with load().
template <class T>
inline void publish(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_relaxed);
}
template <class T>
inline T load(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_relaxed);
}

// The unused blocks of one pool. The store also owns the memory of all the pool's blocks. Guarded
// by the pool's lock, except find().
class BlockStore {
 public:
  BlockStore(Pool* pool, orStream_t stream, int device)
      : pool_(pool), stream_(stream), device_(device) {}
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  Block* acquire() {
    if (spare_ == nullptr) [[unlikely]] {
      grow();
    }
    Block* block = spare_;
    spare_ = block->next_free;
    block->next_free = nullptr;
    return block;
  }
  void recycle(Block* block);

  // Returns the block that contains the byte at `pointer`, or null; never returns the carrier of a
  // slab. Takes no lock and reads only blocks, so a signal handler may call it. The result may be
  // wrong for memory that other threads are allocating or freeing at the same time.
  const Block* find(const void* pointer) const;

  // Returns the blocks of all slabs, in address order. Requires the pool's lock.
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
  std::atomic<Chunk*> chunks_{nullptr};  // the store owns the list
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_BLOCK_H_
