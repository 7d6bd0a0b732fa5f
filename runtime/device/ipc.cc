// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/ipc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/graph.h"
#include "runtime/device/loan.h"
#include "runtime/device/memfd.h"
#include "runtime/device/process.h"

namespace openreg::device {

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

// An entry of the export table: what the handle of a block says, too. An importer compares all of
// it, so that no damaged handle gives it other memory.
struct Entry {
  uint64_t serial;
  uint64_t offset;
  uint64_t size;
  uint64_t device;
  bool operator==(const Entry&) const = default;
};

// A serial number says in its low bits which entry of the file's export table it stands in.
constexpr uint64_t kExports = Arena::kExportTable / sizeof(Entry);
uint64_t next_serial = 1;
bool export_used[OPENREG_MAX_DEVICES][kExports];

uint64_t ExportSlot(uint64_t serial) { return serial % kExports; }

bool WriteEntry(int device, uint64_t slot, const Entry& entry) {
  const off_t place = static_cast<off_t>(arena.device(device).size + slot * sizeof(entry));
  return pwrite(arena.file(device), &entry, sizeof(entry), place) == sizeof(entry);
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

}  // namespace

std::shared_ptr<PeerFile> PeerFile::Keep(const char* function, int file) {
  const int slot = KeepImportFile(file);
  if (slot < 0) {
    close(file);
    (void)Fail(orErrorSystem, "%s: %d blocks of other processes are open already; close some",
               function, kMostImports);
    return nullptr;
  }
  return std::make_shared<PeerFile>(file, slot);
}

PeerFile::~PeerFile() {
  import_files[slot_].store(0);
  close(file_);  // and with it go the locks
}

bool PeerFile::Lock(uint64_t offset, uint64_t size) {
  struct flock range = Range(F_RDLCK, offset, size);
  if (fcntl(file_, F_OFD_SETLK, &range) != 0) {
    return false;
  }
  locked_.emplace(offset, offset + size);
  return true;
}

void PeerFile::Unlock(uint64_t offset) {
  const auto locked = locked_.find(offset);
  struct flock range = Range(F_UNLCK, offset, locked->second - offset);
  (void)fcntl(file_, F_OFD_SETLK, &range);  // only splitting a lock needs memory
  locked_.erase(locked);
}

bool PeerFile::Free(uint64_t offset, uint64_t size) const {
  const auto next = locked_.lower_bound(offset + size);
  return next == locked_.begin() || std::prev(next)->second <= offset;
}

orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base) {
  Allocations& allocations = Allocations::Get();
  const size_t into_page = import.offset % kPage;
  const size_t mapped = RoundUp(into_page + size, kPage);
  const size_t alignment = mapped >= kLargePage ? kLargePage : kPage;
  const uintptr_t pages = allocations.TakeImportRangeLocked(mapped, alignment);
  if (pages == 0) {
    return Fail(orErrorOutOfMemory,
                "%s of %s: no room is left among the addresses for imports (%s)", function,
                ByteText(size).c_str(), ByteText(arena.imports().size).c_str());
  }
  if (!arena.MapImport(pages, mapped, import.file->get(), import.offset - into_page)) {
    const int error = errno;
    allocations.GiveImportRangeLocked(pages, mapped);
    return Fail(orErrorSystem, "%s of %s: the block can not be mapped: %s", function,
                ByteText(size).c_str(), std::strerror(error));
  }
  *base = pages + into_page;
  auto kept = std::make_unique<Import>(std::move(import));
  if (!allocations.AddLocked({*base, size, mapped, device, -1, 0, kept.get()})) {
    arena.UnmapImport(pages, mapped);
    allocations.GiveImportRangeLocked(pages, mapped);
    return Fail(orErrorSystem, "%s: no host memory is left for the table of allocations", function);
  }
  (void)kept.release();  // the allocation owns it now; see CloseImportLocked
  return orSuccess;
}

void CloseImportLocked(const Allocation& allocation) {
  Allocations& allocations = Allocations::Get();
  const std::unique_ptr<Import> import(allocation.import);
  RetractLoans(allocation);
  if (import->serial == 0) {
    ForgetBorrowed(*import, allocation.size);
  }
  const uintptr_t pages = allocation.base - import->offset % kPage;
  const size_t mapped = allocation.reserved;
  allocations.RemoveLocked(allocation);
  arena.UnmapImport(pages, mapped);
  allocations.GiveImportRangeLocked(pages, mapped);
  import->file->Unlock(import->offset);
}

void RetractExport(const Allocation& allocation) {
  RetractLoans(allocation);
  if (allocation.export_serial == 0) {
    return;
  }
  const uint64_t slot = ExportSlot(allocation.export_serial);
  // Overwriting bytes of a page that exists can not fail.
  (void)WriteEntry(allocation.device, slot, {});
  export_used[allocation.device][slot] = false;
}

bool IsOpenElsewhere(const Allocation& allocation) {
  return IsLockedElsewhere(allocation.device, allocation.base, allocation.reserved);
}

bool IsLockedElsewhere(int device, uintptr_t address, size_t size) {
  struct flock range = Range(F_WRLCK, address - arena.device(device).base, size);
  // If the system can not say, the block is kept: wasting it is better than sharing it by mistake.
  return fcntl(arena.file(device), F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

void CloseImports(int device) {
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  for (const Allocation& import : allocations.ImportsLocked(device)) {
    CloseImportLocked(import);
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
    if (!WriteEntry(device, slot,
                    {serial, allocation->base - arena.device(device).base, allocation->size,
                     static_cast<uint64_t>(device)})) {
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
    if (known.import->number == token.number && known.import->serial == token.serial &&
        known.import->offset == token.offset && known.size == token.size) {
      ++known.import->opens;
      *pointer = reinterpret_cast<void*>(known.base);
      return orSuccess;
    }
  }

  int opened;
  if (const orError_t error =
          OpenMemfd("orIpcOpenMemHandle", {token.process, token.file, token.number}, &opened,
                    orErrorInvalidValue);
      error != orSuccess) {
    return error;
  }
  const std::shared_ptr<PeerFile> file = PeerFile::Keep("orIpcOpenMemHandle", opened);
  if (file == nullptr) {
    return orErrorSystem;
  }
  struct stat status {};
  Entry entry{};
  const size_t reserved = RoundUp(token.size, kPage);
  if (fstat(file->get(), &status) != 0 ||
      status.st_size < static_cast<off_t>(Arena::kExportTable) ||
      token.offset > static_cast<uint64_t>(status.st_size) - Arena::kExportTable ||
      reserved > static_cast<uint64_t>(status.st_size) - Arena::kExportTable - token.offset) {
    return Fail(orErrorInvalidValue, "orIpcOpenMemHandle: the handle is damaged");
  }
  if (!file->Lock(token.offset, reserved)) {
    return Fail(orErrorSystem, "orIpcOpenMemHandle: the block can not be locked: %s",
                std::strerror(errno));
  }
  const off_t place = status.st_size - static_cast<off_t>(Arena::kExportTable) +
                      static_cast<off_t>(ExportSlot(token.serial) * sizeof(entry));
  if (pread(file->get(), &entry, sizeof(entry), place) != sizeof(entry) ||
      entry.serial != token.serial) {
    return Fail(
        orErrorInvalidValue,
        "orIpcOpenMemHandle: process %d has freed this memory before it was opened; keep it alive "
        "until the other side has it",
        token.process);
  }
  if (entry != Entry{token.serial, token.offset, token.size, static_cast<uint64_t>(token.device)}) {
    return Fail(orErrorInvalidValue, "orIpcOpenMemHandle: the handle is damaged");
  }
  uintptr_t base;
  if (const orError_t error =
          MapImportLocked("orIpcOpenMemHandle", {file, 1, token.number, token.offset, token.serial},
                          token.size, token.device, &base);
      error != orSuccess) {
    return error;
  }
  *pointer = reinterpret_cast<void*>(base);
  return orSuccess;
}

orError_t Close(void* pointer) {
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  const Allocation* found = allocations.FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (found == nullptr || found->import == nullptr || found->import->serial == 0 ||
      found->base != reinterpret_cast<uintptr_t>(pointer)) {
    return Fail(
        orErrorInvalidDevicePointer,
        "orIpcCloseMemHandle of %p: not what orIpcOpenMemHandle returned, or closed already",
        pointer);
  }
  if (--found->import->opens == 0) {
    CloseImportLocked(Allocation(*found));
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
