// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/shared_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/board.h"
#include "runtime/device/error.h"
#include "runtime/device/memfd.h"
#include "runtime/device/process.h"
#include "runtime/device/stream.h"

namespace openreg::device {
namespace {

// What an orIpcMemoryHandle holds.
struct Token {
  uint16_t magic;
  uint8_t version;
  uint8_t device;
  int32_t process;  // the exporter's
  int32_t file;     // both descriptors are of that process
  int32_t board_file;
  uint64_t number;  // of the file
  uint64_t offset;
  uint64_t size;
  uint64_t board_number;
  uint64_t serial;
};
static_assert(sizeof(Token) <= sizeof(orIpcMemoryHandle));
constexpr uint16_t kMagic = 0x6f4d;  // "oM"
constexpr uint8_t kVersion = 2;

Board::Range RangeOf(const Token& token) {
  return {token.number, token.offset, token.size, token.device};
}

// An export of this process that may not be imported yet. By the address of its first byte.
struct Exported {
  size_t size;
  uint64_t serial;
};

// What of which file is imported: number, offset, size.
using Imported = std::tuple<uint64_t, uint64_t, size_t>;

struct SharedMemory {
  std::multimap<uintptr_t, Exported> exported;
  std::map<Imported, uintptr_t> imported;                  // where it is mapped
  std::multimap<uint64_t, std::weak_ptr<PeerFile>> files;  // by their number
};

SharedMemory& TheSharedMemory() {
  static SharedMemory& shared =
      *new SharedMemory;  // blocks are freed until the very end of a process
  return shared;
}

bool Taken(uint64_t serial) {
  std::shared_ptr<Peer> own;
  MarkWord word;
  return Peer::Own("orIpcIsExported", &own) == orSuccess && !own->Read(serial, &word);
}

// Drops the exports that start in [first, last) and that `ends` is true for; whether any is left
// that reaches into [from, last).
template <class Ends>
bool DropExports(uintptr_t first, uintptr_t from, uintptr_t last, Ends ends) {
  auto& exported = TheSharedMemory().exported;
  bool left = false;
  for (auto one = exported.lower_bound(first); one != exported.end() && one->first < last;) {
    if (ends(one->second.serial)) {
      GiveSlot(one->second.serial);
      one = exported.erase(one);
    } else {
      left = left || one->first + one->second.size > from;
      ++one;
    }
  }
  return left;
}

// The exporter's file, with these bytes free to be locked: one that is open, or opened anew.
orError_t FindFile(const char* function, const Token& token, std::shared_ptr<PeerFile>* found) {
  auto& files = TheSharedMemory().files;
  const auto [first, last] = files.equal_range(token.number);
  for (auto entry = first; entry != last; ++entry) {
    *found = entry->second.lock();
    if (*found != nullptr && (*found)->Free(token.offset, token.size)) {
      return orSuccess;
    }
  }
  int opened;
  if (const orError_t error =
          OpenMemfd(function, {token.process, token.file, token.number}, &opened);
      error != orSuccess) {
    return error;
  }
  *found = PeerFile::Keep(function, opened);
  if (*found == nullptr) {
    return orErrorSystem;
  }
  std::erase_if(files, [](const auto& entry) { return entry.second.expired(); });
  files.emplace(token.number, *found);
  return orSuccess;
}

orError_t FindPart(const char* function, const void* pointer, size_t size, Allocation** found) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  *found = Allocations::Get().FindLocked(address);
  if (*found == nullptr || size == 0 || size > (*found)->base + (*found)->size - address) {
    return Fail(orErrorInvalidDevicePointer,
                "%s of %zu bytes at %p: they are no part of one live allocation of a device",
                function, size, pointer);
  }
  return orSuccess;
}

orError_t Export(orIpcMemoryHandle* handle, void* pointer, size_t size, Stream* stream,
                 uint64_t expected) {
  constexpr const char* kFunction = "orIpcExport";
  std::shared_ptr<Peer> own;
  uint64_t serial;
  MarkWord word;
  uint64_t position;
  if (const orError_t error = Peer::Own(kFunction, &own); error != orSuccess) {
    return error;
  }
  if (const orError_t error = Mark(stream, expected, &word, &position); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(Allocations::Get().mutex());
  Allocation* allocation;
  if (const orError_t error = FindPart(kFunction, pointer, size, &allocation); error != orSuccess) {
    return error;
  }
  if (allocation->device != stream->device()) {
    return Fail(orErrorInvalidDevice, "%s of %p: the bytes are on device %d, the stream on %d",
                kFunction, pointer, allocation->device, stream->device());
  }
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  // So that exporting the same bytes again and again keeps nothing.
  (void)DropExports(address, address, address + 1, Taken);
  const Import* const import = allocation->import;
  const int device = allocation->device;
  Token token{};
  token.magic = kMagic;
  token.version = kVersion;
  token.device = static_cast<uint8_t>(device);
  token.process = own->place().process;
  token.file = import != nullptr ? import->file->get() : arena.file(device);
  token.board_file = own->place().file;
  token.number = import != nullptr ? import->number : arena.file_number(device);
  token.offset = import != nullptr ? import->offset + (address - allocation->base)
                                   : address - arena.device(device).base;
  token.size = size;
  token.board_number = own->place().number;
  if (const orError_t error = TakeSlot(kFunction, RangeOf(token), &serial); error != orSuccess) {
    return error;
  }
  own->board().slot(serial).capture.store(word, std::memory_order_release);
  TheSharedMemory().exported.emplace(address, Exported{size, serial});
  allocation->exported = true;
  token.serial = serial;
  *handle = {};
  std::memcpy(handle->reserved, &token, sizeof(token));
  return orSuccess;
}

orError_t FailTaken(const Token& token) {
  return Fail(orErrorInvalidValue,
              "orIpcImport: the handle of process %d was imported already (each handle is good for "
              "one import), or "
              "its memory was freed",
              token.process);
}

orError_t TakeHandle(Peer& peer, const Token& token) {
  return peer.Take(token.serial) ? orSuccess : FailTaken(token);
}

void ReleaseImport(Allocation* allocation) {
  if (--allocation->import->opens == 0) {
    CloseImportLocked(Allocation(*allocation));
  }
}

orError_t ImportLocked(void** pointer, const Token& token, Peer& peer) {
  constexpr const char* kFunction = "orIpcImport";
  Allocations& allocations = Allocations::Get();
  Allocation* allocation;
  if (token.number == arena.file_number(token.device)) {
    *pointer = reinterpret_cast<void*>(arena.device(token.device).base + token.offset);
    const orError_t error = FindPart(kFunction, *pointer, token.size, &allocation);
    return error == orSuccess ? TakeHandle(peer, token) : error;
  }
  const Imported key{token.number, token.offset, token.size};
  const auto known = TheSharedMemory().imported.find(key);
  if (known != TheSharedMemory().imported.end()) {
    if (const orError_t error = TakeHandle(peer, token); error != orSuccess) {
      return error;
    }
    ++allocations.FindLocked(known->second)->import->opens;
    *pointer = reinterpret_cast<void*>(known->second);
    return orSuccess;
  }

  std::shared_ptr<PeerFile> file;
  if (const orError_t error = FindFile(kFunction, token, &file); error != orSuccess) {
    return error;
  }
  struct stat status {};
  if (fstat(file->get(), &status) != 0 || token.offset > static_cast<uint64_t>(status.st_size) ||
      token.size > static_cast<uint64_t>(status.st_size) - token.offset) {
    return Fail(orErrorInvalidValue, "%s: the handle is damaged", kFunction);
  }
  if (!file->Lock(token.offset, token.size)) {
    return Fail(orErrorSystem, "%s: the bytes can not be locked: %s", kFunction,
                std::strerror(errno));
  }
  uintptr_t base;
  if (const orError_t error = MapImportLocked(kFunction, {file, 1, token.number, token.offset},
                                              token.size, token.device, &base);
      error != orSuccess) {
    file->Unlock(token.offset);
    return error;
  }
  TheSharedMemory().imported.emplace(key, base);
  if (const orError_t error = TakeHandle(peer, token); error != orSuccess) {
    ReleaseImport(allocations.FindLocked(base));
    return error;
  }
  *pointer = reinterpret_cast<void*>(base);
  return orSuccess;
}

orError_t FindImported(void* pointer, Allocation** found) {
  *found = Allocations::Get().FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (*found == nullptr || (*found)->import == nullptr ||
      (*found)->base != reinterpret_cast<uintptr_t>(pointer)) {
    return Fail(orErrorInvalidDevicePointer,
                "orIpcRelease of %p: not what orIpcImport gave, or released already", pointer);
  }
  return orSuccess;
}

orError_t Release(void* pointer) {
  const std::lock_guard lock(Allocations::Get().mutex());
  Allocation* found;
  const orError_t error = FindImported(pointer, &found);
  if (error == orSuccess) {
    ReleaseImport(found);
  }
  return error;
}

orError_t ImportInOrder(void** pointer, const Token& token, Stream* stream, uint64_t expected) {
  if (token.device >= arena.device_count() || token.device != stream->device()) {
    return Fail(orErrorInvalidDevice,
                "orIpcImport: the bytes are on device %d, the stream is on %d, and this process "
                "has %d devices (OPENREG_DEVICE_COUNT)",
                token.device, stream->device(), arena.device_count());
  }
  std::shared_ptr<Peer> peer;
  if (const orError_t error =
          Peer::Open("orIpcImport", {token.process, token.board_file, token.board_number},
                     orErrorProcessEnded, &peer);
      error != orSuccess) {
    return error;
  }
  MarkWord word = 0;
  Board::Range exported{};
  if (!peer->Read(token.serial, &word, &exported)) {
    return FailTaken(token);
  }
  if (exported != RangeOf(token)) {
    return Fail(orErrorInvalidValue, "orIpcImport: the handle is damaged");
  }
  {
    const std::lock_guard lock(Allocations::Get().mutex());
    if (const orError_t error = ImportLocked(pointer, token, *peer); error != orSuccess) {
      *pointer = nullptr;
      return error;
    }
  }
  const orError_t error = Peer::Queue(peer, word, stream, expected);
  if (error != orSuccess) {
    if (token.number != arena.file_number(token.device)) {
      (void)Release(*pointer);
    }
    *pointer = nullptr;
  }
  return error;
}

orError_t ReleaseInOrder(void* pointer, Stream* stream, uint64_t expected) {
  if (stream->Idle()) {
    return Release(pointer);
  }
  {
    const std::lock_guard lock(Allocations::Get().mutex());
    Allocation* found;
    if (const orError_t error = FindImported(pointer, &found); error != orSuccess) {
      return error;
    }
  }
  return stream->Enqueue(expected, nullptr, [&](Command& command) {
    command.kind = Command::kCopy;
    command.place = Command::kOnWorker;
    command.name = "release to another process";
    command.kernel = [](void* arguments) {
      void* imported;
      std::memcpy(&imported, arguments, sizeof(imported));
      (void)Release(imported);  // fails if it was released twice, or by a reset of the device
      return orSuccess;
    };
    command.sink = &stream->sink();
    std::memcpy(command.arguments, &pointer, sizeof(pointer));
  });
}

// A handle is for what has been queued, and what a graph will run has not.
constexpr WhenCaptured kHandsOver{
    "and memory is handed to other processes in the order of what runs: do it before or after the "
    "capture"};

}  // namespace

void RetractExports(const Allocation& allocation) {
  if (allocation.exported) {
    (void)DropExports(allocation.base, allocation.base, allocation.base + allocation.size,
                      [](uint64_t) { return true; });
  }
}

void ForgetImport(const Import& import, size_t size) {
  TheSharedMemory().imported.erase({import.number, import.offset, size});
}

}  // namespace openreg::device

using openreg::device::Allocation;
using openreg::device::Allocations;
using openreg::device::EnterQuery;
using openreg::device::EnterStream;
using openreg::device::Fail;
using openreg::device::FindStream;
using openreg::device::kHandsOver;
using openreg::device::LeftBehind;
using openreg::device::Refuse;
using openreg::device::Stream;
using openreg::device::thread_state;

orError_t orIpcExport(orIpcMemoryHandle* handle, void* pointer, size_t size,
                      orStream_t stream_handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orIpcExport", stream_handle, kHandsOver, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcExport: handle is null");
  }
  return openreg::device::Export(handle, pointer, size, stream, expected);
}

orError_t orIpcImport(void** pointer, const orIpcMemoryHandle* handle, orStream_t stream_handle) {
  Stream* stream;
  uint64_t expected;
  if (const orError_t error =
          EnterStream("orIpcImport", stream_handle, kHandsOver, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  if (pointer == nullptr || handle == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcImport: pointer and handle must not be null");
  }
  *pointer = nullptr;
  openreg::device::Token token;
  std::memcpy(&token, handle->reserved, sizeof(token));
  if (token.magic != openreg::device::kMagic || token.version != openreg::device::kVersion ||
      token.size == 0 || token.size > openreg::device::kMaxDeviceMemory || token.serial == 0) {
    return Fail(orErrorInvalidValue,
                "orIpcImport: these bytes are no handle of this version of OpenReg");
  }
  return openreg::device::ImportInOrder(pointer, token, stream, expected);
}

orError_t orIpcRelease(void* pointer, orStream_t stream_handle) {
  Stream* stream;
  uint64_t expected;
  if (LeftBehind()) {
    return orSuccess;
  }
  // It may wait for room in the stream, which what a graph releases may not.
  if (const orError_t error = thread_state.running == nullptr
                                  ? orSuccess
                                  : Refuse("orIpcRelease", /*only_reads=*/false);
      error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          FindStream("orIpcRelease", stream_handle, kHandsOver, &stream, &expected);
      error != orSuccess) {
    return error;
  }
  return openreg::device::ReleaseInOrder(pointer, stream, expected);
}

orError_t orIpcIsExported(int* exported, const void* pointer, size_t size) {
  if (const orError_t error = EnterQuery("orIpcIsExported"); error != orSuccess) {
    return error;
  }
  if (exported == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcIsExported: exported is null");
  }
  const std::lock_guard lock(Allocations::Get().mutex());
  Allocation* allocation;
  if (const orError_t error =
          openreg::device::FindPart("orIpcIsExported", pointer, size, &allocation);
      error != orSuccess) {
    return error;
  }
  const auto from = reinterpret_cast<uintptr_t>(pointer);
  *exported =
      allocation->exported && (openreg::device::DropExports(allocation->base, from, from + size,
                                                            openreg::device::Taken) ||
                               (allocation->import == nullptr &&
                                openreg::device::IsLockedElsewhere(allocation->device, from, size)))
          ? 1
          : 0;
  return orSuccess;
}
