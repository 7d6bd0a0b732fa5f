// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/ipc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/graph.h"
#include "runtime/device/process.h"

namespace openreg::device {

// A block of another process, mapped here. One for all handles of the same block.
struct Import {
  int file;
  int file_slot;    // its place in import_files
  int opens;        // calls of orIpcOpenMemHandle not yet matched by a close
  uint64_t number;  // of the file
  uint64_t serial;
};

namespace {

// What orIpcMemHandle holds.
struct Token {
  uint32_t magic;
  uint32_t version;
  int32_t process;
  int32_t file;  // descriptor in that process
  int32_t device;
  int32_t reserved;
  uint64_t number;  // of the file
  uint64_t serial;
  uint64_t offset;
  uint64_t size;
};
static_assert(sizeof(Token) <= sizeof(orIpcMemHandle));
constexpr uint32_t kMagic = 0x6f724d48;  // "orMH"
constexpr uint32_t kVersion = 1;

// A serial number says in its low bits which entry of the file's export table it stands in.
constexpr uint64_t kExports = Arena::kExportTable / sizeof(uint64_t);
uint64_t next_serial = 1;
bool export_used[OPENREG_MAX_DEVICES][kExports];

uint64_t ExportSlot(uint64_t serial) { return serial % kExports; }

bool WriteSerial(int device, uint64_t slot, uint64_t serial) {
  const off_t place = static_cast<off_t>(arena.device(device).size + slot * sizeof(serial));
  return pwrite(arena.file(device), &serial, sizeof(serial), place) == sizeof(serial);
}

struct flock Range(short type, uint64_t offset, uint64_t size) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = static_cast<off_t>(size);
  return range;
}

// Descriptors of other processes' files, for the child of a fork to close. 0 is none.
constexpr int kMostImports = 4096;
std::atomic<int> import_files[kMostImports];

int KeepImportFile(int file) {
  for (int slot = 0; slot < kMostImports; ++slot) {
    int none = 0;
    if (import_files[slot].compare_exchange_strong(none, file)) {
      return slot;
    }
  }
  return -1;
}

// A file descriptor that closes itself unless it is kept.
class OwnedFile {
 public:
  explicit OwnedFile(int file) : file_(file) {}
  ~OwnedFile() {
    if (file_ >= 0) {
      close(file_);
    }
  }
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;
  int get() const { return file_; }
  int Release() { return std::exchange(file_, -1); }

 private:
  int file_;
};

void CloseLocked(const Allocation& allocation) {
  Allocations& allocations = Allocations::Get();
  const std::unique_ptr<Import> import(allocation.import);
  const uintptr_t base = allocation.base;
  const size_t reserved = allocation.reserved;
  allocations.RemoveLocked(allocation);
  arena.UnmapImport(base, reserved);
  allocations.GiveImportRangeLocked(base, reserved);
  import_files[import->file_slot].store(0);
  close(import->file);  // and with it goes the lock
}

}  // namespace

void RetractExport(const Allocation& allocation) {
  const uint64_t slot = ExportSlot(allocation.export_serial);
  // Overwriting 8 bytes of a page that exists can not fail.
  (void)WriteSerial(allocation.device, slot, 0);
  export_used[allocation.device][slot] = false;
}

bool IsOpenElsewhere(const Allocation& allocation) {
  struct flock range =
      Range(F_WRLCK, allocation.base - arena.device(allocation.device).base, allocation.reserved);
  // If the system can not say, the block is kept: wasting it is better than sharing it by mistake.
  return fcntl(arena.file(allocation.device), F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

void CloseImports(int device) {
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  for (const Allocation& import : allocations.ImportsLocked(device)) {
    CloseLocked(import);
  }
}

void CloseImportFilesInChild() {
  for (const std::atomic<int>& file : import_files) {
    if (const int open = file.load(std::memory_order_relaxed); open != 0) {
      close(open);
    }
  }
}

namespace {

orError_t Export(orIpcMemHandle* handle, void* pointer) {
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  Allocation* allocation = allocations.FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (allocation == nullptr) {
    return Fail(orErrorInvalidDevicePointer,
                "orIpcGetMemHandle of %p: not inside a live allocation of a device", pointer);
  }
  if (allocation->import != nullptr) {
    return Fail(orErrorInvalidDevicePointer,
                "orIpcGetMemHandle of %p: it belongs to another process; pass its handle on",
                pointer);
  }
  const int device = allocation->device;
  if (allocation->export_serial == 0) {
    bool* used = export_used[device];
    bool* unused = std::find(used, used + kExports, false);
    if (unused == used + kExports) {
      return Fail(orErrorSystem,
                  "orIpcGetMemHandle: %zu blocks of device %d are exported already; free some",
                  static_cast<size_t>(kExports), device);
    }
    const auto slot = static_cast<uint64_t>(unused - used);
    const uint64_t serial = next_serial++ * kExports + slot;
    if (!WriteSerial(device, slot, serial)) {
      return Fail(orErrorSystem, "orIpcGetMemHandle: the table of exports can not be written: %s",
                  std::strerror(errno));
    }
    *unused = true;
    allocation->export_serial = serial;
  }
  Token token{};
  token.magic = kMagic;
  token.version = kVersion;
  token.process = getpid();
  token.file = arena.file(device);
  token.device = device;
  token.number = arena.file_number(device);
  token.serial = allocation->export_serial;
  token.offset = allocation->base - arena.device(device).base;
  token.size = allocation->size;
  *handle = {};
  std::memcpy(handle->reserved, &token, sizeof(token));
  return orSuccess;
}

// Opens the file that a token names; -1 with a failure if it is not there or another one.
int OpenFile(const Token& token) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", token.process, token.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const int error = errno;
    (void)Fail(
        error == ENOENT ? orErrorInvalidValue : orErrorSystem,
        "orIpcOpenMemHandle: the file %s of the exporting process does not open: %s; that process "
        "has to live, and to belong to the same user",
        path, std::strerror(error));
    return -1;
  }
  char own[40], name[128];
  std::snprintf(own, sizeof(own), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(own, name, sizeof(name) - 1);
  const std::string found(name, length > 0 ? static_cast<size_t>(length) : 0);
  const std::string expected = std::string("/memfd:") + MemfdName(token.number).text;
  if (found.compare(0, expected.size(), expected) != 0) {
    close(file);
    (void)Fail(
        orErrorInvalidValue,
        "orIpcOpenMemHandle: %s is %s, not the memory that the handle names: the exporting process "
        "is gone",
        path, found.c_str());
    return -1;
  }
  return file;
}

orError_t Open(void** pointer, const Token& token) {
  if (token.process == getpid() && token.device < arena.device_count() &&
      token.number == arena.file_number(token.device)) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenMemHandle: the handle was made by this process, for %p: use that pointer",
                reinterpret_cast<void*>(arena.device(token.device).base + token.offset));
  }
  if (token.device >= arena.device_count()) {
    return Fail(orErrorInvalidDevice,
                "orIpcOpenMemHandle: the block is on device %d, and this process has %d "
                "(OPENREG_DEVICE_COUNT)",
                token.device, arena.device_count());
  }
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  for (const Allocation& known : allocations.ImportsLocked(token.device)) {
    if (known.import->number == token.number && known.import->serial == token.serial) {
      ++known.import->opens;
      *pointer = reinterpret_cast<void*>(known.base);
      return orSuccess;
    }
  }

  OwnedFile file(OpenFile(token));
  if (file.get() < 0) {
    return orPeekAtLastError();
  }
  struct stat status {};
  uint64_t serial = 0;
  const size_t reserved = RoundUp(token.size, kPage);
  if (fstat(file.get(), &status) != 0 || status.st_size < static_cast<off_t>(Arena::kExportTable) ||
      token.offset > static_cast<uint64_t>(status.st_size) - Arena::kExportTable ||
      reserved > static_cast<uint64_t>(status.st_size) - Arena::kExportTable - token.offset) {
    return Fail(orErrorInvalidValue, "orIpcOpenMemHandle: the handle is damaged");
  }
  struct flock range = Range(F_RDLCK, token.offset, reserved);
  if (fcntl(file.get(), F_OFD_SETLK, &range) != 0) {
    return Fail(orErrorSystem, "orIpcOpenMemHandle: the block can not be locked: %s",
                std::strerror(errno));
  }
  const off_t place = status.st_size - static_cast<off_t>(Arena::kExportTable) +
                      static_cast<off_t>(ExportSlot(token.serial) * sizeof(serial));
  if (pread(file.get(), &serial, sizeof(serial), place) != sizeof(serial) ||
      serial != token.serial) {
    return Fail(
        orErrorInvalidValue,
        "orIpcOpenMemHandle: process %d has freed this memory before it was opened; keep it alive "
        "until the other side has it",
        token.process);
  }

  const size_t alignment = reserved >= kLargePage ? kLargePage : kPage;
  const uintptr_t base = allocations.TakeImportRangeLocked(reserved, alignment);
  if (base == 0) {
    return Fail(orErrorOutOfMemory,
                "orIpcOpenMemHandle of %s: no room is left among the addresses for imports (%s)",
                ByteText(token.size).c_str(), ByteText(arena.imports().size).c_str());
  }
  if (!arena.MapImport(base, reserved, file.get(), token.offset)) {
    const int error = errno;
    allocations.GiveImportRangeLocked(base, reserved);
    return Fail(orErrorSystem, "orIpcOpenMemHandle of %s: the block can not be mapped: %s",
                ByteText(token.size).c_str(), std::strerror(error));
  }
  const int file_slot = KeepImportFile(file.get());
  auto import =
      std::make_unique<Import>(Import{file.get(), file_slot, 1, token.number, token.serial});
  if (file_slot < 0 ||
      !allocations.AddLocked({base, token.size, reserved, token.device, -1, 0, import.get()})) {
    if (file_slot >= 0) {
      import_files[file_slot].store(0);
    }
    arena.UnmapImport(base, reserved);
    allocations.GiveImportRangeLocked(base, reserved);
    return Fail(orErrorSystem, "orIpcOpenMemHandle: %d blocks are open already; close some",
                kMostImports);
  }
  (void)file.Release();
  (void)import.release();  // the allocation owns it now; see CloseLocked
  *pointer = reinterpret_cast<void*>(base);
  return orSuccess;
}

orError_t Close(void* pointer) {
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  const Allocation* found = allocations.FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (found == nullptr || found->import == nullptr ||
      found->base != reinterpret_cast<uintptr_t>(pointer)) {
    return Fail(
        orErrorInvalidDevicePointer,
        "orIpcCloseMemHandle of %p: not what orIpcOpenMemHandle returned, or closed already",
        pointer);
  }
  if (--found->import->opens == 0) {
    CloseLocked(Allocation(*found));
  }
  return orSuccess;
}

}  // namespace
}  // namespace openreg::device

using openreg::device::Captures;
using openreg::device::Capturing;
using openreg::device::EnterDevice;
using openreg::device::EnterRelease;
using openreg::device::Fail;
using openreg::device::LeftBehind;

orError_t orIpcGetMemHandle(orIpcMemHandle* handle, void* pointer) {
  if (const orError_t error = EnterDevice("orIpcGetMemHandle"); error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcGetMemHandle: handle is null");
  }
  return openreg::device::Export(handle, pointer);
}

orError_t orIpcOpenMemHandle(void** pointer, const orIpcMemHandle* handle) {
  if (const orError_t error = EnterDevice("orIpcOpenMemHandle"); error != orSuccess) {
    return error;
  }
  if (Capturing()) [[unlikely]] {
    if (const auto refused = Captures::Get().RefuseUnsafe("orIpcOpenMemHandle")) {
      return *refused;
    }
  }
  if (pointer == nullptr || handle == nullptr) {
    return Fail(orErrorInvalidValue, "orIpcOpenMemHandle: pointer and handle must not be null");
  }
  *pointer = nullptr;
  openreg::device::Token token;
  std::memcpy(&token, handle->reserved, sizeof(token));
  if (token.magic != openreg::device::kMagic || token.version != openreg::device::kVersion ||
      token.device < 0 || token.size == 0 || token.size > openreg::device::kMaxDeviceMemory ||
      token.offset % openreg::device::kPage != 0) {
    return Fail(orErrorInvalidValue,
                "orIpcOpenMemHandle: these bytes are no handle of this version of OpenReg");
  }
  return openreg::device::Open(pointer, token);
}

orError_t orIpcCloseMemHandle(void* pointer) {
  if (LeftBehind()) {
    return orSuccess;
  }
  if (const orError_t error = EnterRelease("orIpcCloseMemHandle"); error != orSuccess) {
    return error;
  }
  return openreg::device::Close(pointer);
}
