// SPDX-License-Identifier: BSD-3-Clause
//
// LimitedSource - a source that applies a limit to another source. It limits the amount of device
// memory that this process may allocate.
//
// The other source belongs to the caller and must outlive this one. Any thread may change the limit
// at any time; this does not affect memory that is already allocated. All other functions may be
// called by only one thread at a time, as for any source.
#ifndef RUNTIME_ALLOCATOR_LIMITED_SOURCE_H_
#define RUNTIME_ALLOCATOR_LIMITED_SOURCE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>

#include "runtime/allocator/source.h"

namespace openreg::allocator {

class LimitedSource : public Source {
 public:
  explicit LimitedSource(Source* source) : source_(source) {}

  void set_limit(size_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  size_t limit() const { return limit_.load(std::memory_order_relaxed); }

  void* allocate(size_t size, std::string* reason) override {
    if (size > left()) {
      *reason = "this process may allocate " + std::to_string(limit()) + " bytes and holds " +
                std::to_string(taken_);
      return nullptr;
    }
    void* segment = source_->allocate(size, reason);
    taken_ += segment != nullptr ? size : 0;
    return segment;
  }

  void free(void* segment, size_t size) override {
    source_->free(segment, size);
    taken_ -= size;
  }

  void trim() override { source_->trim(); }

  Room room() override {
    Room room = source_->room();
    room.limit = std::min(room.limit, limit());
    return room;
  }

 private:
  size_t left() const {
    const size_t limit = this->limit();
    return limit - std::min(limit, taken_);
  }

  Source* const source_;
  std::atomic<size_t> limit_{kNoLimit};
  size_t taken_ = 0;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_LIMITED_SOURCE_H_
