// SPDX-License-Identifier: BSD-3-Clause
//
// Timeline - how far the streams have come: all that the allocator asks about execution.
// DeviceTimeline is the real one; tests have their own.
#ifndef RUNTIME_ALLOCATOR_TIMELINE_H_
#define RUNTIME_ALLOCATOR_TIMELINE_H_

#include <cstdint>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

// A point in the order of one stream. It belongs to the caller of mark() until drop().
using Mark = std::uintptr_t;
// The mark of a stream that has nothing to wait for: always passed.
inline constexpr Mark kNoMark = 0;

// Every function may be called from every thread.
class OPENREG_API Timeline {
 public:
  virtual ~Timeline() = default;

  // False inside of a kernel or host callback: a mark or a wait there could wait for itself.
  virtual bool may_wait() = 0;

  // Behind all work that is queued on `stream` now. When there is no such point, because the stream
  // does not exist any more, waits for all work of all devices instead and returns kNoMark; if a
  // kernel among it failed, throws its Error after that.
  virtual Mark mark(orStream_t stream) = 0;

  // Whether all work before the mark is done. Never waits; called with a lock held.
  virtual bool passed(Mark mark) = 0;

  // Returns when it is done. Leaves the error of a failed kernel with its stream, where the
  // program's next synchronization finds it. Throws Error if that cannot be waited for now; then
  // the work may go on, or come yet.
  virtual void wait(Mark mark) = 0;

  virtual void drop(Mark mark) = 0;
};

// A mark that is dropped at the end of its owner's life.
class OwnedMark {
 public:
  OwnedMark() = default;
  OwnedMark(Timeline* timeline, Mark mark) : timeline_(timeline), mark_(mark) {}
  OwnedMark(OwnedMark&& other) noexcept
      : timeline_(other.timeline_), mark_(std::exchange(other.mark_, kNoMark)) {}
  OwnedMark& operator=(OwnedMark&& other) noexcept {
    std::swap(timeline_, other.timeline_);
    std::swap(mark_, other.mark_);
    return *this;
  }
  ~OwnedMark() {
    if (mark_ != kNoMark) {
      timeline_->drop(mark_);
    }
  }

  void wait() const {
    if (mark_ != kNoMark) {
      timeline_->wait(mark_);
    }
  }

 private:
  Timeline* timeline_ = nullptr;
  Mark mark_ = kNoMark;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_TIMELINE_H_
