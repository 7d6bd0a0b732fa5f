// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/board.h"

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

namespace openreg::device {
namespace {

// Guards everything below, and is never held while a stream is waited for.
std::mutex& BoardMutex() {
  static std::mutex& mutex = *new std::mutex;  // a thread may wait while the process ends
  return mutex;
}

struct Boards {
  std::shared_ptr<Peer> own;
  std::vector<std::shared_ptr<Peer>> others;  // those in use of late
  uint64_t next_serial = 1;
  std::vector<uint64_t> given;  // by slot that was ever in use: its serial number; 0: free
  std::vector<uint64_t> free_slots;
};

Boards& TheBoards() {
  static Boards& boards = *new Boards;
  return boards;
}

// Marks queued on each stream so far. Written under the stream's lock of producers.
uint64_t queued_marks[Board::kStreams];
std::atomic<Board*> own_board{nullptr};
std::atomic<int> own_file{-1};

// Sleeps while the word, which other processes change, holds `expected`; 20 ms at most.
void WaitShared(const std::atomic<uint32_t>& word, uint32_t expected) {
  constexpr timespec kNap{0, 20'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &kNap, nullptr, 0);
}

void WakeShared(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Board* MapBoard(int file) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  madvise(memory, sizeof(Board), MADV_DONTFORK);
  return static_cast<Board*>(memory);
}

// The kernel of a mark.
orError_t PassMark(void* arguments) {
  MarkWord word;
  std::memcpy(&word, arguments, sizeof(word));
  Board::Progress& progress =
      own_board.load(std::memory_order_acquire)->streams[word % Board::kStreams];
  progress.marks.store(word / Board::kStreams, std::memory_order_release);
  progress.signal.fetch_add(1, std::memory_order_release);
  WakeShared(progress.signal);
  return orSuccess;
}

struct QueuedWait {
  std::shared_ptr<Peer> peer;
  MarkWord word;
};

// The kernel of a wait.
orError_t WaitForMark(void* arguments) {
  QueuedWait* raw;
  std::memcpy(&raw, arguments, sizeof(raw));
  const std::unique_ptr<QueuedWait> wait(raw);
  if (wait->peer->Wait(wait->word) != Peer::State::kEnded) {
    return orSuccess;
  }
  char message[128];
  std::snprintf(message, sizeof(message),
                "process %d ended before it had done the work that this stream waits for",
                wait->peer->place().process);
  return orKernelFail(orErrorProcessEnded, message, nullptr, nullptr);
}

}  // namespace

Peer::~Peer() { munmap(board_, sizeof(Board)); }

orError_t Peer::Own(const char* function, std::shared_ptr<Peer>* peer) {
  const std::lock_guard lock(BoardMutex());
  Boards& boards = TheBoards();
  if (boards.own == nullptr) {
    MemfdPlace place{getpid(), -1, 0};
    place.file = CreateMemfd(sizeof(Board), &place.number);
    Board* const board = place.file >= 0 ? MapBoard(place.file) : nullptr;
    if (board == nullptr) {
      const int error = errno;
      if (place.file >= 0) {
        close(place.file);
      }
      return Fail(orErrorSystem, "%s: the memory for other processes can not be made: %s", function,
                  std::strerror(error));
    }
    board->magic.store(Board::kMagic, std::memory_order_release);
    boards.own = std::make_shared<Peer>(place, board);  // the file stays open for others to find
    own_file.store(place.file, std::memory_order_relaxed);
    own_board.store(board, std::memory_order_release);
  }
  *peer = boards.own;
  return orSuccess;
}

orError_t Peer::Open(const char* function, const MemfdPlace& place, orError_t lost,
                     std::shared_ptr<Peer>* peer) {
  const std::lock_guard lock(BoardMutex());
  Boards& boards = TheBoards();
  if (boards.own != nullptr && boards.own->place().number == place.number) {
    *peer = boards.own;
    return orSuccess;
  }
  for (const std::shared_ptr<Peer>& known : boards.others) {
    if (known->place().number == place.number && IsThere(place)) {
      *peer = known;
      return orSuccess;
    }
  }
  int file;
  if (const orError_t error = OpenMemfd(function, place, &file, lost); error != orSuccess) {
    return error;
  }
  struct stat status {};
  const bool fits = fstat(file, &status) == 0 && status.st_size == sizeof(Board);
  Board* const board = fits ? MapBoard(file) : nullptr;
  const int error = errno;
  close(file);
  if (fits && board == nullptr) {
    return Fail(orErrorSystem, "%s: the memory of process %d can not be mapped: %s", function,
                place.process, std::strerror(error));
  }
  if (board == nullptr || board->magic.load(std::memory_order_acquire) != Board::kMagic) {
    if (board != nullptr) {
      munmap(board, sizeof(Board));
    }
    return Fail(orErrorInvalidValue,
                "%s: the file of process %d is no board of this version of OpenReg", function,
                place.process);
  }
  std::erase_if(boards.others, [](const auto& known) { return !IsThere(known->place()); });
  *peer = boards.others.emplace_back(std::make_shared<Peer>(place, board));
  return orSuccess;
}

bool Peer::Read(uint64_t serial, MarkWord* word, Board::Range* range) {
  Board::Slot& slot = board_->slot(serial);
  if (slot.serial.load(std::memory_order_acquire) != serial) {
    return false;
  }
  *word = slot.capture.load(std::memory_order_acquire);
  if (range != nullptr) {
    *range = slot.GetRange();
  }
  // A slot gets its next serial number before its next capture and range.
  return slot.serial.load(std::memory_order_acquire) == serial;
}

Peer::State Peer::Look(MarkWord word) const {
  if (board_->Reached(word)) {
    return State::kReached;
  }
  if (IsThere(place_)) {
    return State::kPending;
  }
  return board_->Reached(word) ? State::kReached : State::kEnded;  // its last act
}

Peer::State Peer::Wait(MarkWord word) const {
  const std::atomic<uint32_t>& futex = board_->streams[word % Board::kStreams].signal;
  if (SpinUntil([&] { return board_->Reached(word); })) {
    return State::kReached;
  }
  const HostWait wait;
  for (;;) {
    const uint32_t seen = futex.load(std::memory_order_acquire);
    if (const State state = Look(word); state != State::kPending) {
      return state;
    }
    if (Stopping()) {
      return State::kStopped;
    }
    WaitShared(futex, seen);
  }
}

orError_t Peer::FailEnded(const char* function) const {
  return Fail(orErrorProcessEnded,
              "%s: process %d ended before it had done the work that the event captured", function,
              place_.process);
}

orError_t Peer::Queue(const std::shared_ptr<Peer>& peer, MarkWord word, Stream* stream,
                      uint64_t expected) {
  if (peer->board_->Reached(word)) {
    return orSuccess;
  }
  auto wait = std::make_unique<QueuedWait>(QueuedWait{peer, word});
  const orError_t error = stream->Enqueue(expected, nullptr, [&](Command& command) {
    command.kind = Command::kCopy;
    command.place = Command::kOnWorker;
    command.name = "wait for another process";
    command.kernel = &WaitForMark;
    command.sink = &stream->sink();
    QueuedWait* const raw = wait.get();
    std::memcpy(command.arguments, &raw, sizeof(raw));
  });
  if (error == orSuccess) {
    (void)wait.release();  // the kernel's now
  }
  return error;
}

namespace {

// Of exports that were imported; the exporter has not looked at them since. Needs BoardMutex.
void SweepSlots(Boards& boards) {
  for (uint64_t& serial : boards.given) {
    MarkWord word;
    if (serial != 0 && !boards.own->Read(serial, &word)) {
      boards.free_slots.push_back(serial % Board::kSlots);
      serial = 0;
    }
  }
}

}  // namespace

orError_t TakeSlot(const char* function, const Board::Range& range, uint64_t* serial) {
  std::shared_ptr<Peer> own;
  if (const orError_t error = Peer::Own(function, &own); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(BoardMutex());
  Boards& boards = TheBoards();
  if (boards.free_slots.empty() && boards.given.size() == Board::kSlots) {
    SweepSlots(boards);
  }
  uint64_t index;
  if (!boards.free_slots.empty()) {
    index = boards.free_slots.back();
    boards.free_slots.pop_back();
  } else if (boards.given.size() < Board::kSlots) {
    index = boards.given.size();
    boards.given.push_back(0);
  } else {
    return Fail(
        orErrorSystem,
        "%s: %llu events between processes, and exports that nobody has imported, exist already",
        function, static_cast<unsigned long long>(Board::kSlots));
  }
  *serial = boards.next_serial++ * Board::kSlots + index;
  boards.given[index] = *serial;
  Board::Slot& slot = own->board().slot(*serial);
  slot.serial.store(*serial, std::memory_order_release);
  slot.capture.store(0, std::memory_order_release);
  slot.SetRange(range);
  return orSuccess;
}

void GiveSlot(uint64_t serial) {
  const std::lock_guard lock(BoardMutex());
  Boards& boards = TheBoards();
  uint64_t& given = boards.given[serial % Board::kSlots];
  if (given != serial) {
    return;  // swept, and maybe somebody else's by now
  }
  (void)boards.own->Take(serial);
  given = 0;
  boards.free_slots.push_back(serial % Board::kSlots);
}

void CloseBoardFileInChild() {
  if (const int file = own_file.load(std::memory_order_relaxed); file >= 0) {
    close(file);
  }
}

orError_t Mark(Stream* stream, uint64_t expected, MarkWord* word, uint64_t* position) {
  if (stream->Idle()) {
    *word = 0;
    *position = stream->tail();
    return orSuccess;
  }
  return stream->Enqueue(expected, position, [&](Command& command) {
    *word = ++queued_marks[stream->index] * Board::kStreams + stream->index;
    command.kind = Command::kCopy;
    command.place = Command::kAnywhere;
    command.name = "mark for other processes";
    command.kernel = &PassMark;
    command.sink = &stream->sink();
    std::memcpy(command.arguments, word, sizeof(*word));
  });
}

}  // namespace openreg::device
