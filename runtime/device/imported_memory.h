// SPDX-License-Identifier: BSD-3-Clause
//
// imported_memory.h - memory of other processes, mapped here.
//
// A handle (shared_memory.h) names a process and a range of the memfd of one of its devices. The
// importer takes the file from /proc/<pid>/fd, checks the random number in its name, and maps the
// range into its own import window. It holds a read lock (F_OFD_SETLK) on the bytes of the file as
// long as they are mapped. The system drops the lock with the process, so a kill of either side
// leaves nothing behind. The owner asks for a conflicting lock before it uses freed memory again.
//
// All state is under the lock of Allocations.
#ifndef RUNTIME_DEVICE_IMPORTED_MEMORY_H_
#define RUNTIME_DEVICE_IMPORTED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "runtime/device/allocation.h"

namespace openreg::device {

// The memory of another process's device, open here. What is locked by it goes with it.
class PeerFile {
 public:
  // Takes `file` over. Null, with a failure in the name of `function`, when too many are open.
  static std::shared_ptr<PeerFile> Keep(const char* function, int file);
  PeerFile(int file, int slot) : file_(file), slot_(slot) {}
  ~PeerFile();
  PeerFile(const PeerFile&) = delete;
  PeerFile& operator=(const PeerFile&) = delete;
  int get() const { return file_; }

  // The shared count of these bytes, which have to be Free here: false, with errno, when the system
  // refuses.
  bool Lock(uint64_t offset, uint64_t size);
  void Unlock(uint64_t offset);

  // Whether nothing that is locked by this file overlaps these bytes: giving back one of two ranges
  // would unlock what they have in common.
  bool Free(uint64_t offset, uint64_t size) const;

 private:
  const int file_;
  const int slot_;
  std::map<uint64_t, uint64_t> locked_;  // the end of each range, by its start
};

// A range of another process's memory, mapped here: one for all handles of the same bytes.
struct Import {
  std::shared_ptr<PeerFile> file;
  int opens;        // not yet matched by a close
  uint64_t number;  // of the file
  uint64_t offset;  // in the file, of the first byte
};

// Maps the pages of [offset, offset + size) of a file that is locked, as memory of `device`, and
// keeps the import with it. Fails in the name of `function`.
orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base);

// Takes it away again, and with it the lock.
void CloseImportLocked(const Allocation& allocation);

// Whether another process has locked some of these bytes of an own device.
bool IsLockedElsewhere(int device, uintptr_t address, size_t size);

// Closes all blocks which were imported for a device.
void CloseImports(int device);

// After a fork, in the child: its copies of our files would keep the locks when the parent dies.
// Async-signal-safe.
void CloseImportFilesInChild();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_MEMORY_H_
