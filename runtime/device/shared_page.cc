// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/shared_page.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

#include "runtime/device/error.h"
#include "runtime/device/host_wait.h"
#include "runtime/device/process.h"
#include "runtime/device/spin_wait.h"

namespace openreg::device {
namespace {

// Guards everything below. Never held during waits for a stream.
std::mutex& PagesMutex() {
  static std::mutex& mutex = *new std::mutex;  // never destroyed, because a thread may wait at exit
  return mutex;
}

struct Pages {
  std::shared_ptr<MappedPage> own;
  std::vector<std::shared_ptr<MappedPage>> others;  // recently used pages of other processes
  uint64_t next_serial = 1;
  std::vector<uint64_t> given;  // serial numbers of all slots that were ever used; 0 means free
  std::vector<uint64_t> free_slots;
};

Pages& ThePages() {
  static Pages& pages = *new Pages;
  return pages;
}

// The number of marks that were queued on each stream so far. Written while the stream's producer
// lock is held.
uint64_t queued_marks[SharedPage::kStreams];
std::atomic<SharedPage*> own_page{nullptr};
std::atomic<int> own_file{-1};

// Sleeps for at most 20 ms while the word is equal to `expected`. Other processes change the word.
void WaitShared(const std::atomic<uint32_t>& word, uint32_t expected) {
  constexpr timespec kTimeout{0, 20'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &kTimeout, nullptr, 0);
}

void WakeShared(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

SharedPage* MapPage(int file) {
  void* memory = mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  madvise(memory, sizeof(SharedPage), MADV_DONTFORK);
  return static_cast<SharedPage*>(memory);
}

// Implements the kernel of a mark: counts the mark as passed and wakes waiters.
orError_t PassMark(void* arguments) {
  MarkWord word;
  std::memcpy(&word, arguments, sizeof(word));
  SharedPage::Progress& progress =
      own_page.load(std::memory_order_acquire)->streams[word % SharedPage::kStreams];
  progress.marks.store(word / SharedPage::kStreams, std::memory_order_release);
  progress.signal.fetch_add(1, std::memory_order_release);
  WakeShared(progress.signal);
  return orSuccess;
}

struct QueuedWait {
  std::shared_ptr<MappedPage> page;
  MarkWord word;
};

// Implements the kernel that waits for a mark of another process.
orError_t WaitForMark(void* arguments) {
  QueuedWait* raw;
  std::memcpy(&raw, arguments, sizeof(raw));
  const std::unique_ptr<QueuedWait> wait(raw);
  if (wait->page->Wait(wait->word) != MappedPage::State::kEnded) {
    return orSuccess;
  }
  char message[128];
  std::snprintf(message, sizeof(message),
                "process %d ended before it had done the work that this stream waits for",
                wait->page->place().process);
  return orKernelFail(orErrorProcessEnded, message, nullptr, nullptr);
}

}  // namespace

MappedPage::~MappedPage() { munmap(page_, sizeof(SharedPage)); }

orError_t MappedPage::Own(const char* function, std::shared_ptr<MappedPage>* page) {
  const std::lock_guard lock(PagesMutex());
  Pages& pages = ThePages();
  if (pages.own == nullptr) {
    MemfdPlace place{getpid(), -1, 0};
    place.file = CreateMemfd(sizeof(SharedPage), &place.number);
    SharedPage* const mapped = place.file >= 0 ? MapPage(place.file) : nullptr;
    if (mapped == nullptr) {
      const int error = errno;
      if (place.file >= 0) {
        close(place.file);
      }
      return Fail(
          orErrorSystem,
          "%s: cannot create this process's shared page: %s; free memory or raise the limit on "
          "open files (ulimit -n)",
          function, std::strerror(error));
    }
    mapped->magic.store(SharedPage::kMagic, std::memory_order_release);
    // Keep the file open so that other processes can find it.
    pages.own = std::make_shared<MappedPage>(place, mapped);
    own_file.store(place.file, std::memory_order_relaxed);
    own_page.store(mapped, std::memory_order_release);
  }
  *page = pages.own;
  return orSuccess;
}

orError_t MappedPage::Open(const char* function, const MemfdPlace& place, orError_t lost,
                           std::shared_ptr<MappedPage>* page) {
  const std::lock_guard lock(PagesMutex());
  Pages& pages = ThePages();
  if (pages.own != nullptr && pages.own->place().number == place.number) {
    *page = pages.own;
    return orSuccess;
  }
  for (const std::shared_ptr<MappedPage>& known : pages.others) {
    if (known->place().number == place.number && MemfdExists(place)) {
      *page = known;
      return orSuccess;
    }
  }
  int file;
  if (const orError_t error = OpenMemfd(function, place, &file, lost); error != orSuccess) {
    return error;
  }
  struct stat status {};
  const bool fits = fstat(file, &status) == 0 && status.st_size == sizeof(SharedPage);
  SharedPage* const mapped = fits ? MapPage(file) : nullptr;
  const int error = errno;
  close(file);
  if (fits && mapped == nullptr) {
    return Fail(orErrorSystem, "%s: cannot map the shared page of process %d: %s", function,
                place.process, std::strerror(error));
  }
  if (mapped == nullptr || mapped->magic.load(std::memory_order_acquire) != SharedPage::kMagic) {
    if (mapped != nullptr) {
      munmap(mapped, sizeof(SharedPage));
    }
    return Fail(orErrorInvalidValue,
                "%s: the file of process %d is not a shared page of this version of OpenReg",
                function, place.process);
  }
  std::erase_if(pages.others, [](const auto& known) { return !MemfdExists(known->place()); });
  *page = pages.others.emplace_back(std::make_shared<MappedPage>(place, mapped));
  return orSuccess;
}

bool MappedPage::Read(uint64_t serial, MarkWord* word, SharedPage::Range* range) {
  SharedPage::Slot& slot = page_->slot(serial);
  if (slot.serial.load(std::memory_order_acquire) != serial) {
    return false;
  }
  *word = slot.capture.load(std::memory_order_acquire);
  if (range != nullptr) {
    *range = slot.GetRange();
  }
  // Check the serial number after the reads: when a slot is reused, its serial number is written
  // before its capture and range.
  return slot.serial.load(std::memory_order_acquire) == serial;
}

MappedPage::State MappedPage::Query(MarkWord word) const {
  if (page_->Reached(word)) {
    return State::kReached;
  }
  if (MemfdExists(place_)) {
    return State::kPending;
  }
  // Check again, because the process may have reached the mark before it ended.
  return page_->Reached(word) ? State::kReached : State::kEnded;
}

MappedPage::State MappedPage::Wait(MarkWord word) const {
  const std::atomic<uint32_t>& futex = page_->streams[word % SharedPage::kStreams].signal;
  if (SpinUntil([&] { return page_->Reached(word); })) {
    return State::kReached;
  }
  const HostWait wait;
  for (;;) {
    const uint32_t seen = futex.load(std::memory_order_acquire);
    if (const State state = Query(word); state != State::kPending) {
      return state;
    }
    if (Stopping()) {
      return State::kStopped;
    }
    WaitShared(futex, seen);
  }
}

orError_t MappedPage::FailEnded(const char* function) const {
  return Fail(orErrorProcessEnded,
              "%s: process %d ended before it had done the work that the event captured", function,
              place_.process);
}

orError_t MappedPage::EnqueueWait(const std::shared_ptr<MappedPage>& page, MarkWord word,
                                  const StreamQueue& queue) {
  if (page->page_->Reached(word)) {
    return orSuccess;
  }
  auto wait = std::make_unique<QueuedWait>(QueuedWait{page, word});
  const orError_t error = queue.EnqueueOwnKernel(Command::kOnWorker, "wait for another process",
                                                 &WaitForMark, wait.get());
  if (error == orSuccess) {
    (void)wait.release();  // now owned by the kernel
  }
  return error;
}

namespace {

// Frees the slots of exports that have been imported, if the exporter has not yet noticed the
// import. The caller must hold PagesMutex.
void SweepSlots(Pages& pages) {
  for (uint64_t& serial : pages.given) {
    MarkWord word;
    if (serial != 0 && !pages.own->Read(serial, &word)) {
      pages.free_slots.push_back(serial % SharedPage::kSlots);
      serial = 0;
    }
  }
}

}  // namespace

orError_t AllocateSlot(const char* function, const SharedPage::Range& range, uint64_t* serial) {
  std::shared_ptr<MappedPage> own;
  if (const orError_t error = MappedPage::Own(function, &own); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(PagesMutex());
  Pages& pages = ThePages();
  if (pages.free_slots.empty() && pages.given.size() == SharedPage::kSlots) {
    SweepSlots(pages);
  }
  uint64_t index;
  if (!pages.free_slots.empty()) {
    index = pages.free_slots.back();
    pages.free_slots.pop_back();
  } else if (pages.given.size() < SharedPage::kSlots) {
    index = pages.given.size();
    pages.given.push_back(0);
  } else {
    return Fail(orErrorSystem,
                "%s: %llu interprocess events and exports that were not imported already exist; "
                "destroy events or free exported memory",
                function, static_cast<unsigned long long>(SharedPage::kSlots));
  }
  *serial = pages.next_serial++ * SharedPage::kSlots + index;
  pages.given[index] = *serial;
  SharedPage::Slot& slot = own->page().slot(*serial);
  slot.serial.store(*serial, std::memory_order_release);
  slot.capture.store(0, std::memory_order_release);
  slot.SetRange(range);
  return orSuccess;
}

void FreeSlot(uint64_t serial) {
  const std::lock_guard lock(PagesMutex());
  Pages& pages = ThePages();
  uint64_t& given = pages.given[serial % SharedPage::kSlots];
  if (given != serial) {
    return;  // the slot was already freed by SweepSlots and may have a new user
  }
  (void)pages.own->Take(serial);
  given = 0;
  pages.free_slots.push_back(serial % SharedPage::kSlots);
}

void CloseSharedPageInChild() {
  if (const int file = own_file.load(std::memory_order_relaxed); file >= 0) {
    close(file);
  }
}

orError_t Mark(const StreamQueue& queue, MarkWord* word, uint64_t* position) {
  Stream* const stream = queue.stream();
  if (stream->Idle()) {
    *word = 0;
    *position = stream->tail();
    return orSuccess;
  }
  return queue.Enqueue(position, [&](Command& command) {
    *word = ++queued_marks[stream->index] * SharedPage::kStreams + stream->index;
    command.kind = Command::kCopy;
    command.place = Command::kAnywhere;
    command.name = "mark for other processes";
    command.kernel = &PassMark;
    command.sink = &stream->sink();
    std::memcpy(command.arguments, word, sizeof(*word));
  });
}

}  // namespace openreg::device
