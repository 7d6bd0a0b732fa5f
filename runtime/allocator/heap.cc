// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/heap.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

namespace openreg::allocator {

int Bins::bin_of(size_t size) {
  constexpr int kFirstLog = std::bit_width(kRangeGranule) - 1;
  static_assert(kBinsPerDoubling == 16);
  const int log = std::bit_width(size) - 1;
  return (log - kFirstLog) * kBinsPerDoubling + static_cast<int>((size >> (log - 4)) & 15);
}

void Bins::insert(Block* range) {
  const int bin = bin_of(range->size);
  Block*& head = heads_[bin];
  range->previous_free = nullptr;
  range->next_free = head;
  if (head != nullptr) {
    head->previous_free = range;
  }
  head = range;
  used_[bin / 64] |= uint64_t{1} << (bin % 64);
}

void Bins::remove(Block* range) {
  if (range->next_free != nullptr) {
    range->next_free->previous_free = range->previous_free;
  }
  if (range->previous_free != nullptr) {
    range->previous_free->next_free = range->next_free;
  } else {
    const int bin = bin_of(range->size);
    heads_[bin] = range->next_free;
    if (range->next_free == nullptr) {
      used_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
    }
  }
  range->next_free = nullptr;
  range->previous_free = nullptr;
}

int Bins::next_used(int bin) const {
  if (bin >= kBins) {
    return -1;
  }
  size_t word = bin / 64;
  uint64_t bits = used_[word] & (~uint64_t{0} << (bin % 64));
  while (bits == 0) {
    if (++word == used_.size()) {
      return -1;
    }
    bits = used_[word];
  }
  return static_cast<int>(word) * 64 + std::countr_zero(bits);
}

Block* Bins::search(int bin, size_t size, int max_searched, const SplitLimit& limit) const {
  Block* best = nullptr;
  for (Block* range = heads_[bin]; range != nullptr && max_searched > 0;
       range = range->next_free, --max_searched) {
    if (range->size >= size && (best == nullptr || range->size < best->size) &&
        limit.fits(range->size, size)) {
      best = range;
      if (range->size == size) {
        break;
      }
    }
  }
  return best;
}

Block* Bins::best_fit(size_t size, const SplitLimit& limit) const {
  const int bin = bin_of(size);
  if (Block* range = search(bin, size, kMaxSearched, limit); range != nullptr) {
    return range;
  }
  for (int larger = next_used(bin + 1); larger >= 0; larger = next_used(larger + 1)) {
    if (Block* range = search(larger, size, kMaxSearched, limit); range != nullptr) {
      return range;
    }
  }
  // Otherwise the pool must grow. Growing costs more than examining all ranges of the bin.
  return search(bin, size, std::numeric_limits<int>::max(), limit);
}

size_t Bins::largest() const {
  size_t largest = 0;
  for (int bin = next_used(0); bin >= 0; bin = next_used(bin + 1)) {
    for (const Block* range = heads_[bin]; range != nullptr; range = range->next_free) {
      largest = std::max(largest, range->size);
    }
  }
  return largest;
}

bool Heap::worth_splitting(size_t size, size_t rest) const {
  if (type_ == kLargePool && size + rest >= split_limit_.largest) {
    return false;
  }
  // Split a large range if a large request can use the rest, or if much memory would otherwise be
  // wasted.
  return type_ == kSmallPool ? rest >= kRangeGranule : rest >= kLargestSmall || rest > size / 8;
}

Block* Heap::allocate(size_t size) {
  Block* range = bins_.best_fit(size, split_limit_);
  if (range == nullptr) {
    return nullptr;
  }
  const size_t rest = range->size - size;
  Block* right = rest > 0 && worth_splitting(size, rest) ? store_->acquire() : nullptr;
  bins_.remove(range);
  if (right != nullptr) {
    publish<void*>(right->pointer, static_cast<char*>(range->pointer) + size);
    publish(right->size, rest);
    publish(range->size, size);
    publish(right->state, BlockState::kFree);
    right->type = type_;
    right->segment = range->segment;
    right->previous = range;
    right->next = range->next;
    if (right->next != nullptr) {
      right->next->previous = right;
    }
    range->next = right;
    bins_.insert(right);
    change_pieces(range->segment, 1);
  }
  return range;
}

void Heap::free(Block* range) {
  publish(range->state, BlockState::kFree);
  if (Block* next = range->next; next != nullptr && next->state == BlockState::kFree) {
    bins_.remove(next);
    join(range, next);
  }
  if (Block* previous = range->previous;
      previous != nullptr && previous->state == BlockState::kFree) {
    bins_.remove(previous);
    join(previous, range);
    range = previous;
  }
  bins_.insert(range);
}

void Heap::join(Block* range, Block* next) {
  range->next = next->next;
  if (range->next != nullptr) {
    range->next->previous = range;
  }
  change_pieces(range->segment, -1);
  const size_t size = range->size + next->size;
  store_->recycle(next);
  publish(range->size, size);
}

void Heap::change_pieces(Segment* segment, int64_t change) {
  segment->pieces += change;
  if (segment->uses > 0) {
    if (change > 0) {
      usage_->pieces_added(change, 0);
    } else {
      usage_->pieces_removed(-change, 0);
    }
  }
}

void Heap::add_segment(void* base, size_t size) {
  Segment& segment = segments_.emplace_back();
  Block* range = store_->acquire();
  segment = {.base = base, .size = size, .type = type_, .pieces = 1, .first = range};
  publish(range->pointer, base);
  publish(range->size, size);
  publish(range->state, BlockState::kFree);
  range->type = type_;
  range->segment = &segment;
  bins_.insert(range);
  usage_->segment_added(size);
}

void Heap::grow_older() {
  for (Segment& segment : segments_) {
    segment.idle += segment.uses == 0 ? 1 : 0;
  }
}

void Heap::detach_free_segments(std::list<Segment>* out,
                                const std::function<bool(const Segment&)>& accept) {
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto next = std::next(segment);
    // Free neighbors are always merged. A free range that is first and has no successor is
    // therefore the whole segment.
    if (Block* range = segment->first;
        range->state == BlockState::kFree && range->next == nullptr && accept(*segment)) {
      bins_.remove(range);
      store_->recycle(range);
      segment->first = nullptr;
      usage_->segment_removed(segment->size);
      out->splice(out->end(), segments_, segment);
    }
    segment = next;
  }
}

}  // namespace openreg::allocator
