// SPDX-License-Identifier: BSD-3-Clause
//
// shared_page.h - the page on which a process publishes the state of its events, exports and
// streams for other processes.
//
// The page is a file of shared memory, which is created when it is first needed. It contains one
// slot for each interprocess event and each exported range. For each stream, it contains the number
// of marks that the stream has passed. A mark is a command that increments this number. A slot
// captures a mark of a stream, by its number. The slot is reached when the stream has passed that
// many marks. As for an event within one process, a wait compares two numbers that only increase,
// and writing a slot again does not change a wait that is in progress.
//
// The owner writes its page, and other processes map and read it. There is one exception: an
// importer removes the serial number from the slot of its export. Whether the owner is alive is
// looked up in /proc (memfd.h), so nothing needs to be cleaned up after a process was killed. Any
// thread may call these functions.
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

// The number of a mark and the index of its stream, in one word. The word 0 is always reached.
using MarkWord = uint64_t;

// The layout of the shared memory.
struct SharedPage {
  static constexpr uint64_t kSlots = 32768;
  static constexpr uint64_t kStreams = uint64_t{1} << Stream::kIndexBits;
  struct Progress {
    std::atomic<uint64_t> marks;   // number of marks passed so far
    std::atomic<uint32_t> signal;  // futex: changes with each mark
    uint32_t unused;
  };
  // The memory of a memory handle. All zeros for an event.
  struct Range {
    uint64_t file;  // identifies the file
    uint64_t offset;
    uint64_t size;
    uint64_t device;
    bool operator==(const Range&) const = default;
  };
  struct Slot {
    std::atomic<uint64_t> serial;  // 0 if free; the low bits are the slot's index
    std::atomic<MarkWord> capture;
    std::atomic<uint64_t> range[4];  // the words of a Range

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
  // Distinguishes the page from other files and from pages with another version of this struct.
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

// The page of this process or of another one, mapped into this process. All its waiters share it.
class MappedPage {
 public:
  MappedPage(const MemfdPlace& place, SharedPage* page) : place_(place), page_(page) {}
  ~MappedPage();
  MappedPage(const MappedPage&) = delete;
  MappedPage& operator=(const MappedPage&) = delete;

  // Gets the page of this process. Creates it if necessary.
  static orError_t Own(const char* function, std::shared_ptr<MappedPage>* page);
  // Gets the page of any process. Fails with the error `lost` if that process has ended.
  static orError_t Open(const char* function, const MemfdPlace& place, orError_t lost,
                        std::shared_ptr<MappedPage>* page);

  const MemfdPlace& place() const { return place_; }
  SharedPage& page() { return *page_; }

  // Reads the capture of the slot with this serial number, and its range if `range` is not null.
  // Returns false if no slot has this serial number any more.
  bool Read(uint64_t serial, MarkWord* word, SharedPage::Range* range = nullptr);

  // Removes the serial number from its slot. Returns false if another process has already removed
  // it.
  bool Take(uint64_t serial) {
    return page_->slot(serial).serial.compare_exchange_strong(serial, 0, std::memory_order_acq_rel);
  }

  enum class State { kReached, kPending, kEnded, kStopped };
  // Returns the state of the mark without waiting. Never returns kStopped.
  State Query(MarkWord word) const;
  // Waits for the mark. Never returns kPending. Returns kStopped when this process is exiting.
  State Wait(MarkWord word) const;
  // Fails with the error for kEnded.
  orError_t FailEnded(const char* function) const;

  // Makes work that is queued later wait for `word`. If the process of `page` ends before it
  // reaches `word`, the stream fails.
  static orError_t EnqueueWait(const std::shared_ptr<MappedPage>& page, MarkWord word,
                               const StreamQueue& queue);

 private:
  const MemfdPlace place_;
  SharedPage* const page_;
};

// Allocates a slot on this process's page, for an event or for an export of `range`. If all slots
// are in use, fails with `function` in the message. A slot is free again when another process has
// removed its serial number.
orError_t AllocateSlot(const char* function, const SharedPage::Range& range, uint64_t* serial);
// Frees a slot, even if its serial number has been removed.
void FreeSlot(uint64_t serial);

// Called in a forked child. Closes the child's copy of the file of the page. Async-signal-safe.
void CloseSharedPageInChild();

// Captures the currently queued work in a mark. The mark is queued unless the stream is idle.
// `position` receives the stream's position, for waits within this process.
orError_t Mark(const StreamQueue& queue, MarkWord* word, uint64_t* position);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_SHARED_PAGE_H_
