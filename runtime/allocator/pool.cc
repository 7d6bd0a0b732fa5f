// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace openreg::allocator {

Block* Pool::allocate_range(size_t bytes, size_t requested) {
  Heap& from = heap(bytes > kLargestSmall ? kLargePool : kSmallPool);
  Block* range = from.allocate(round_up(bytes, kRangeGranule));
  if (range != nullptr) {
    from.hold(range->segment);
    hand_out(range, requested);
  }
  return range;
}

void Pool::put_back_range(Block* block) {
  Heap& to = heap(block->type);
  to.release(block->segment);
  to.free(block);
}

Slab* Pool::make_slab(int size_class) {
  if (spare_slabs_ == nullptr) {
    spare_slabs_ = &all_slabs_.emplace_back();
  }
  const size_t bytes = slab_bytes(size_class);
  Block* carrier = small_.allocate(round_up(bytes, kRangeGranule));
  if (carrier == nullptr) {
    return nullptr;
  }
  publish(carrier->state, BlockState::kSlab);
  Slab* slab = spare_slabs_;
  spare_slabs_ = slab->next;
  *slab = {.carrier = carrier,
           .size_class = size_class,
           .capacity = static_cast<uint32_t>(bytes / class_bytes(size_class))};
  small_.change_pieces(carrier->segment, slab->capacity - int64_t{1});
  link(slab);
  return slab;
}

Block* Pool::cut(Slab* slab) {
  Block* block = store_.acquire();
  const size_t size = class_bytes(slab->size_class);
  publish<void*>(block->pointer, static_cast<char*>(slab->carrier->pointer) + slab->cut * size);
  publish(block->size, size);
  block->type = kSmallPool;
  block->slab = slab;
  ++slab->cut;
  return block;
}

void Pool::retire(Slab* slab) {
  unlink(slab);
  while (slab->free != nullptr) {
    Block* block = slab->free;
    slab->free = block->next_free;
    store_.recycle(block);
  }
  small_.change_pieces(slab->carrier->segment, int64_t{1} - slab->capacity);
  small_.free(slab->carrier);
  slab->next = spare_slabs_;
  spare_slabs_ = slab;
}

void Pool::link(Slab* slab) {
  Slab*& first = slabs_[slab->size_class];
  slab->previous = nullptr;
  slab->next = first;
  if (first != nullptr) {
    first->previous = slab;
  }
  first = slab;
}

void Pool::unlink(Slab* slab) {
  (slab->previous != nullptr ? slab->previous->next : slabs_[slab->size_class]) = slab->next;
  if (slab->next != nullptr) {
    slab->next->previous = slab->previous;
  }
  slab->previous = nullptr;
  slab->next = nullptr;
}

void Pool::suspend(Block* block) {
  publish(block->state, BlockState::kPending);
  ++pending_;
  Usage& usage = usage_of(block);
  usage.freed(block->size, block->requested);
  usage.suspended(block->size);
}

void Pool::resume(Block* block, Observer* observer) {
  if (observer != nullptr) {
    observer->observe(event_of(Action::kFreeCompleted, *block));
  }
  block->users.clear();
  --pending_;
  usage_of(block).resumed(block->size);
  put_back(block);
}

void Pool::await(orStream_t stream, Mark mark, Block* block) {
  auto queue = std::ranges::find(awaited_, stream, &Awaited::stream);
  if (queue == awaited_.end()) {
    queue = awaited_.insert(awaited_.end(), Awaited{.stream = stream, .entries = {}});
  }
  queue->entries.push_back({mark, block});
}

void Pool::collect(Timeline* timeline, Observer* observer) {
  for (Awaited& queue : awaited_) {
    while (!queue.entries.empty() && timeline->passed(queue.entries.front().mark)) {
      const auto [mark, block] = queue.entries.front();
      queue.entries.pop_front();
      timeline->drop(mark);
      block->users.pop_back();
      if (block->users.empty()) {
        resume(block, observer);
      }
    }
  }
  std::erase_if(awaited_, [](const Awaited& queue) { return queue.entries.empty(); });
}

std::vector<orStream_t> Pool::awaited_streams() const {
  std::vector<orStream_t> streams;
  std::ranges::transform(awaited_, std::back_inserter(streams), &Awaited::stream);
  return streams;
}

void Pool::grow_older() {
  small_.grow_older();
  large_.grow_older();
}

void Pool::detach_free_segments(std::list<Segment>* out,
                                const std::function<bool(const Segment&)>& accept) {
  for (Slab* first : slabs_) {
    for (Slab* slab = first; slab != nullptr;) {
      Slab* next = slab->next;
      if (slab->live == 0) {
        retire(slab);
      }
      slab = next;
    }
  }
  small_.detach_free_segments(out, accept);
  large_.detach_free_segments(out, accept);
}

void Pool::describe_segments(std::vector<SegmentDescription>* out) const {
  const std::vector<const Block*> slab_blocks = store_.slab_blocks();
  const auto describe = [](const Block* block) {
    const bool used =
        block->state == BlockState::kAllocated || block->state == BlockState::kPending;
    return BlockDescription{.base = block->pointer,
                            .size = block->size,
                            .requested = used ? block->requested : 0,
                            .state = block->state};
  };
  for (const Heap* heap : {&small_, &large_}) {
    for (const Segment& segment : heap->segments()) {
      SegmentDescription description{.base = segment.base,
                                     .size = segment.size,
                                     .stream = stream_,
                                     .pool = id,
                                     .type = heap->type(),
                                     .blocks = {}};
      for (const Block* range = segment.first; range != nullptr; range = range->next) {
        if (range->state != BlockState::kSlab) {
          description.blocks.push_back(describe(range));
          continue;
        }
        char* position = static_cast<char*>(range->pointer);
        char* const end = position + range->size;
        for (auto block =
                 std::ranges::lower_bound(slab_blocks, range->pointer, {}, &Block::pointer);
             block != slab_blocks.end() && (*block)->pointer < end; ++block) {
          description.blocks.push_back(describe(*block));
          position += (*block)->size;
        }
        if (position < end) {
          description.blocks.push_back({.base = position,
                                        .size = static_cast<size_t>(end - position),
                                        .requested = 0,
                                        .state = BlockState::kSlab});
        }
      }
      out->push_back(std::move(description));
    }
  }
}

size_t Pool::largest_free() const { return std::max(small_.largest_free(), large_.largest_free()); }

}  // namespace openreg::allocator
