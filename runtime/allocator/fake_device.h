// SPDX-License-Identifier: BSD-3-Clause
//
// FakeSource and FakeTimeline - memory and streams for the allocator's tests and benchmarks.
//
// FakeSource provides host memory up to a limited capacity. The memory is mapped, so untouched
// pages cost nothing. In FakeTimeline, a stream is two numbers: the pieces of work that were
// queued, and the pieces that are done. A test changes both explicitly. A wait for a mark completes
// the work before the mark.
#ifndef RUNTIME_ALLOCATOR_FAKE_DEVICE_H_
#define RUNTIME_ALLOCATOR_FAKE_DEVICE_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "runtime/allocator/source.h"
#include "runtime/allocator/timeline.h"

namespace openreg::allocator {

// A source that leaves locking to the allocator, like DeviceSource. Its map is unprotected, so a
// race detector would report a missing lock.
class FakeSource : public Source {
 public:
  explicit FakeSource(size_t capacity = size_t{1} << 40) : capacity_(capacity) {}
  ~FakeSource() override {
    for (const auto& [base, size] : segments_) {
      (void)munmap(base, size);
    }
  }
  FakeSource(const FakeSource&) = delete;
  FakeSource& operator=(const FakeSource&) = delete;

  void* allocate(size_t size, std::string* reason) override {
    if (size > capacity_ - reserved_) {
      *reason = "the fake device is full";
      return nullptr;
    }
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      *reason = "mmap failed";
      return nullptr;
    }
    segments_.emplace(base, size);
    serials_.emplace(base, ++last_serial_);
    reserved_ += size;
    return base;
  }

  void free(void* segment, size_t size) override {
    const auto found = segments_.find(segment);
    if (found == segments_.end() || found->second != size) {
      throw std::logic_error("a segment was returned that was not allocated");
    }
    segments_.erase(found);
    serials_.erase(segment);
    reserved_ -= size;
    (void)munmap(segment, size);
  }

  void trim() override { ++trims_; }
  Room room() override { return {.free = capacity_ - reserved_, .total = capacity_}; }

  const std::map<void*, size_t>& segments() const { return segments_; }
  size_t reserved() const { return reserved_; }
  // Returns the segment's serial number, or 0 if there is no segment at this address. Each
  // allocated segment gets a new number, which distinguishes it from earlier segments at the same
  // address.
  int64_t serial(void* segment) const {
    const auto found = serials_.find(segment);
    return found != serials_.end() ? found->second : 0;
  }
  int trims() const { return trims_; }

 private:
  const size_t capacity_;
  std::map<void*, size_t> segments_;
  size_t reserved_ = 0;
  std::map<void*, int64_t> serials_;
  int64_t last_serial_ = 0;
  int trims_ = 0;
};

class FakeTimeline : public Timeline {
 public:
  bool may_wait() override { return true; }
  Mark mark(orStream_t stream) override {
    const std::lock_guard lock(mutex_);
    size_t index = marks_.size();
    if (unused_.empty()) {
      marks_.emplace_back();
    } else {
      index = unused_.back();
      unused_.pop_back();
    }
    marks_[index] = {stream, streams_[stream].queued};
    return index + 1;
  }
  bool passed(Mark mark) override {
    const std::lock_guard lock(mutex_);
    const Entry& entry = marks_.at(mark - 1);
    return streams_[entry.stream].done >= entry.position;
  }
  void wait(Mark mark) override {
    const std::lock_guard lock(mutex_);
    const Entry& entry = marks_.at(mark - 1);
    Stream& stream = streams_[entry.stream];
    stream.done = std::max(stream.done, entry.position);
    ++waits_;
  }
  void drop(Mark mark) override {
    const std::lock_guard lock(mutex_);
    unused_.push_back(mark - 1);
  }

  void queue(orStream_t stream) {
    const std::lock_guard lock(mutex_);
    ++streams_[stream].queued;
  }
  // Completes up to `count` pieces of work.
  void run(orStream_t stream, int64_t count) {
    const std::lock_guard lock(mutex_);
    Stream& entry = streams_[stream];
    entry.done = std::min(entry.queued, entry.done + count);
  }
  int64_t queued(orStream_t stream) {
    const std::lock_guard lock(mutex_);
    return streams_[stream].queued;
  }
  int64_t done(orStream_t stream) {
    const std::lock_guard lock(mutex_);
    return streams_[stream].done;
  }
  size_t marks_in_use() {
    const std::lock_guard lock(mutex_);
    return marks_.size() - unused_.size();
  }
  int waits() {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

 private:
  struct Stream {
    int64_t queued = 0;
    int64_t done = 0;
  };
  struct Entry {
    orStream_t stream = nullptr;
    int64_t position = 0;
  };
  std::mutex mutex_;
  std::map<orStream_t, Stream> streams_;
  std::deque<Entry> marks_;
  std::deque<size_t> unused_;
  int waits_ = 0;
};

// Returns a stream handle that is valid only for a FakeTimeline.
inline orStream_t fake_stream(uintptr_t number) {
  return reinterpret_cast<orStream_t>(number * 0x1000);
}

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_FAKE_DEVICE_H_
