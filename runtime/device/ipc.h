// SPDX-License-Identifier: BSD-3-Clause
//
// ipc.h - blocks of device memory that several processes use.
//
// A handle names a process, the memfd of one of its devices by number and by the random number in
// its name, and the block's range in it. Who opens it takes the file from /proc/<pid>/fd, checks
// the name, and maps that range into its own import window.
//
// Two facts need to survive a kill of either side, so the system keeps them:
//  - that a block is open: who opens it holds a read lock (F_OFD_SETLK) on the block's bytes of
//    the file, which goes away with the process. The owner asks for conflicting locks before it
//    uses a freed block again.
//  - that a handle is still good: a table behind the device's memory in the same file has the
//    serial number of each exported block, and its range, which the handle has to name; freeing
//    takes it out.
// Opening locks first and looks at the serial afterwards; freeing takes the serial out first and
// looks at the locks afterwards: one of both always sees the other.
//
// Loans (loan.h) are parts of blocks: the same files and locks, in smaller ranges.
//
// All state is under the lock of Allocations.
#ifndef RUNTIME_DEVICE_IPC_H_
#define RUNTIME_DEVICE_IPC_H_

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

// A range of another process's memory, mapped here. One for all handles of the same block, and one
// for all loans of the same bytes.
struct Import {
  std::shared_ptr<PeerFile> file;
  int opens;        // not yet matched by a close
  uint64_t number;  // of the file
  uint64_t offset;  // in the file, of the first byte
  uint64_t serial;  // of the block; 0: it was borrowed
};

// Maps the pages of [offset, offset + size) of a file that is locked, as memory of `device`, and
// keeps the import with it. Fails in the name of `function`.
orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base);

// Takes it away again, and with it the lock.
void CloseImportLocked(const Allocation& allocation);

// Whether another process has locked some of these bytes of an own device.
bool IsLockedElsewhere(int device, uintptr_t address, size_t size);

// Makes handles and loans of this block unusable for processes that have not opened it yet.
void RetractExport(const Allocation& allocation);

// Whether another process has this block open.
bool IsOpenElsewhere(const Allocation& allocation);

// Closes all blocks which were imported for a device.
void CloseImports(int device);

// After a fork, in the child: its copies of our files would keep the locks when the parent dies.
// Async-signal-safe.
void CloseImportFilesInChild();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IPC_H_
