// SPDX-License-Identifier: BSD-3-Clause
//
// shared_page.h - what a process tells other processes about its events, its exports and its
// streams.
//
// A file of shared memory, created at the first use of one of them. It has slots, one for each
// event between processes and each exported range, and for each stream the number of marks that it
// has passed. A mark is a command that increments that number; a slot captures the number of a mark
// of a stream, and is reached when that stream has passed as many. So, as with an event of one
// process, a wait compares two numbers that only grow, and writing a slot again does not change a
// wait that is under way.
//
// The owner writes its page; other processes map it and read, except that an importer takes the
// serial number out of its slot. Whether the owner lives is looked up in /proc (memfd.h), so there
// is nothing to clean up after a kill. Threads: any.
#ifndef RUNTIME_DEVICE_SHARED_PAGE_H_
#define RUNTIME_DEVICE_SHARED_PAGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/memfd.h"
#include "runtime/device/openreg.h"
#include "runtime/device/stream.h"

namespace openreg::device {

// The number of a mark and the index of its stream, in one word. 0 is reached.
using MarkWord = uint64_t;

// The memory that processes share.
struct SharedPage {
  static constexpr uint64_t kSlots = 32768;
  static constexpr uint64_t kStreams = uint64_t{1} << Stream::kIndexBits;
  struct Progress {
    std::atomic<uint64_t> marks;   // passed so far
    std::atomic<uint32_t> signal;  // futex: changes with each
    uint32_t unused;
  };
  // What a handle of memory names; zeros for an event.
  struct Range {
    uint64_t file;  // its number
    uint64_t offset;
    uint64_t size;
    uint64_t device;
    bool operator==(const Range&) const = default;
  };
  struct Slot {
    std::atomic<uint64_t> serial;  // 0: free. Its low bits are the slot's index
    std::atomic<MarkWord> capture;
    std::atomic<uint64_t> range[4];  // a Range

    void SetRange(const Range& to) {
      const uint64_t words[4] = {to.file, to.offset, to.size, to.device};
      for (int word = 0; word < 4; ++word) {
        range[word].store(words[word], std::memory_order_release);
      }
    }
    Range GetRange() const {
      uint64_t words[4];
      for (int word = 0; word < 4; ++word) {
        words[word] = range[word].load(std::memory_order_acquire);
      }
      return {words[0], words[1], words[2], words[3]};
    }
  };
  // Distinguishes it from other files and other versions of this struct.
  static constexpr uint64_t kMagic = 0x0000'0002'6472'426f;  // "oBrd", and the version
  std::atomic<uint64_t> magic;
  Progress streams[kStreams];
  Slot slots[kSlots];

  Slot& slot(uint64_t serial) { return slots[serial % kSlots]; }
  bool Reached(MarkWord word) const {
    return streams[word % kStreams].marks.load(std::memory_order_acquire) >= word / kStreams;
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The page of a process, this one or another, mapped here. Shared by all that wait for it.
class MappedPage {
 public:
  MappedPage(const MemfdPlace& place, SharedPage* page) : place_(place), page_(page) {}
  ~MappedPage();
  MappedPage(const MappedPage&) = delete;
  MappedPage& operator=(const MappedPage&) = delete;

  // The page of this process, which is created if necessary.
  static orError_t Own(const char* function, std::shared_ptr<MappedPage>* page);
  // The page of any process; fails with `lost` if that process has ended.
  static orError_t Open(const char* function, const MemfdPlace& place, orError_t lost,
                        std::shared_ptr<MappedPage>* page);

  const MemfdPlace& place() const { return place_; }
  SharedPage& page() { return *page_; }

  // The capture of the slot with this serial number, and the range (may be null) of its handle;
  // false if no slot has it any more.
  bool Read(uint64_t serial, MarkWord* word, SharedPage::Range* range = nullptr);

  // Takes the serial number out of its slot. False if another process was faster.
  bool Take(uint64_t serial) {
    return page_->slot(serial).serial.compare_exchange_strong(serial, 0, std::memory_order_acq_rel);
  }

  enum class State { kReached, kPending, kEnded, kStopped };
  // Never kStopped.
  State Query(MarkWord word) const;
  // Waits. Never kPending; kStopped when this process exits.
  State Wait(MarkWord word) const;
  // Fails with a text for kEnded.
  orError_t FailEnded(const char* function) const;

  // Work queued from now on waits for `word`, and fails with the stream if the process of `page`
  // ends before.
  static orError_t EnqueueWait(const std::shared_ptr<MappedPage>& page, MarkWord word,
                               const StreamQueue& queue);

 private:
  const MemfdPlace place_;
  SharedPage* const page_;
};

// Slots of the own page, for an event or an export of `range`. `function` is for the error when all
// are in use; a slot of which another process took the serial number is free again then.
orError_t TakeSlot(const char* function, const SharedPage::Range& range, uint64_t* serial);
// Also for a slot whose serial number was taken.
void GiveSlot(uint64_t serial);

// After a fork, in the child. Async-signal-safe.
void CloseSharedPageInChild();

// Captures what is queued now. `position` is the stream's, for waits of this process.
orError_t Mark(const StreamQueue& queue, MarkWord* word, uint64_t* position);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_SHARED_PAGE_H_
