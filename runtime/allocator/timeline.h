// SPDX-License-Identifier: BSD-3-Clause
//
// Timeline - reports the progress of streams. It is the allocator's only interface to execution.
// DeviceTimeline is the real implementation; tests use other implementations.
#ifndef RUNTIME_ALLOCATOR_TIMELINE_H_
#define RUNTIME_ALLOCATOR_TIMELINE_H_

#include <cstdint>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

// A point in the order of one stream. The caller of mark() owns the mark until it calls drop().
using Mark = std::uintptr_t;
// The mark of a stream without work to wait for. It has always passed.
inline constexpr Mark kNoMark = 0;

// Any thread may call any function.
class OPENREG_API Timeline {
 public:
  virtual ~Timeline() = default;

  // Returns false inside a kernel or host callback, where a wait could wait for the kernel or
  // callback itself.
  virtual bool may_wait() = 0;

  // Marks the point after all work that is now queued on `stream`. If the stream no longer exists,
  // such a point does not exist either. In this case, mark() waits for all work on all devices and
  // returns kNoMark. If a kernel in that work failed, mark() throws the kernel's Error after the
  // wait.
  virtual Mark mark(orStream_t stream) = 0;

  // Returns whether all work before the mark is done. Never waits. Called while a lock is held.
  virtual bool passed(Mark mark) = 0;

  // Waits until the mark has passed. The error of a failed kernel remains with its stream, and the
  // program's next synchronization returns it. Throws Error if it cannot wait for the mark now; the
  // work may then not have finished or even started.
  virtual void wait(Mark mark) = 0;

  virtual void drop(Mark mark) = 0;
};

// A mark that is dropped in the destructor.
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
