// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/imported_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/process.h"
#include "runtime/device/shared_memory.h"

namespace openreg::device {

namespace {

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
    (void)Fail(orErrorSystem, "%s: %d ranges of other processes are imported already; release some",
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
  if (!allocations.AddLocked({*base, size, mapped, device, -1, kept.get()})) {
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
  RetractExports(allocation);
  ForgetImport(*import, allocation.size);
  const uintptr_t pages = allocation.base - import->offset % kPage;
  const size_t mapped = allocation.reserved;
  allocations.RemoveLocked(allocation);
  arena.UnmapImport(pages, mapped);
  allocations.GiveImportRangeLocked(pages, mapped);
  import->file->Unlock(import->offset);
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

}  // namespace openreg::device
