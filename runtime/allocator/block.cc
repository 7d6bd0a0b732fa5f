// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/block.h"

#include <algorithm>
#include <utility>

namespace openreg::allocator {

BlockStore::~BlockStore() {
  for (Chunk* chunk = chunks_.load(std::memory_order_acquire); chunk != nullptr;) {
    delete std::exchange(chunk, chunk->next);
  }
}

void BlockStore::recycle(Block* block) {
  publish(block->state, BlockState::kSpare);
  block->slab = nullptr;
  block->segment = nullptr;
  block->previous = nullptr;
  block->next = nullptr;
  block->next_free = spare_;
  spare_ = block;
}

const Block* BlockStore::find(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (const Chunk* chunk = chunks_.load(std::memory_order_acquire); chunk != nullptr;
       chunk = chunk->next) {
    for (const Block& block : chunk->blocks) {
      const BlockState state = load(block.state);
      if (state == BlockState::kSpare || state == BlockState::kSlab) {
        continue;
      }
      // The subtraction is unsigned, so an address before the block yields a huge value.
      if (address - reinterpret_cast<uintptr_t>(load(block.pointer)) < load(block.size)) {
        return &block;
      }
    }
  }
  return nullptr;
}

std::vector<const Block*> BlockStore::slab_blocks() const {
  std::vector<const Block*> blocks;
  for (const Chunk* chunk = chunks_.load(std::memory_order_acquire); chunk != nullptr;
       chunk = chunk->next) {
    for (const Block& block : chunk->blocks) {
      if (block.slab != nullptr) {
        blocks.push_back(&block);
      }
    }
  }
  std::ranges::sort(blocks, {}, &Block::pointer);
  return blocks;
}

void BlockStore::grow() {
  // The intrusive list owns the chunk. The list has no smart pointers, because it is read without a
  // lock.
  auto* chunk = new Chunk;
  for (Block& block : chunk->blocks) {
    block.stream = stream_;
    block.device = device_;
    block.pool = pool_;
    block.next_free = spare_;
    spare_ = &block;
  }
  chunk->next = chunks_.load(std::memory_order_relaxed);
  chunks_.store(chunk, std::memory_order_release);
}

}  // namespace openreg::allocator
