// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/imported_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <iterator>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"

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

// The descriptors of files of other processes. A forked child closes them. 0 means that the slot is
// unused.
constexpr int kMaxImports = 4096;
std::atomic<int> import_files[kMaxImports];

int KeepImportFile(int file) {
  for (int slot = 0; slot < kMaxImports; ++slot) {
    int none = 0;
    if (import_files[slot].compare_exchange_strong(none, file)) {
      return slot;
    }
  }
  return -1;
}

}  // namespace

std::shared_ptr<ImportedFile> ImportedFile::Keep(const char* function, int file) {
  const int slot = KeepImportFile(file);
  if (slot < 0) {
    close(file);
    (void)Fail(orErrorSystem,
               "%s: this process already has %d files of other processes open, which is the limit; "
               "release imported memory that is no longer needed",
               function, kMaxImports);
    return nullptr;
  }
  return std::make_shared<ImportedFile>(file, slot);
}

ImportedFile::~ImportedFile() {
  import_files[slot_].store(0);
  close(file_);  // also releases the locks of the file
}

bool ImportedFile::Lock(uint64_t offset, uint64_t size) {
  struct flock range = Range(F_RDLCK, offset, size);
  if (fcntl(file_, F_OFD_SETLK, &range) != 0) {
    return false;
  }
  locked_.emplace(offset, offset + size);
  return true;
}

void ImportedFile::Unlock(uint64_t offset) {
  const auto locked = locked_.find(offset);
  struct flock range = Range(F_UNLCK, offset, locked->second - offset);
  (void)fcntl(file_, F_OFD_SETLK, &range);  // cannot fail: only splitting a lock needs memory
  locked_.erase(locked);
}

bool ImportedFile::Free(uint64_t offset, uint64_t size) const {
  const auto next = locked_.lower_bound(offset + size);
  return next == locked_.begin() || std::prev(next)->second <= offset;
}

bool IsLockedElsewhere(int device, uintptr_t address, size_t size) {
  struct flock range = Range(F_WRLCK, address - arena.device(device).base, size);
  // If the operating system returns an error, treat the block as locked. It then stays reserved,
  // because it is better to waste the block than to share it by mistake.
  return fcntl(arena.file(device), F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

void CloseImportFilesInChild() {
  for (const std::atomic<int>& file : import_files) {
    if (const int open = file.load(std::memory_order_relaxed); open != 0) {
      close(open);
    }
  }
}

}  // namespace openreg::device
