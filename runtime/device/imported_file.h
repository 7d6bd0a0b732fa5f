// SPDX-License-Identifier: BSD-3-Clause
//
// imported_file.h - files of other processes' device memory, and the locks that count importers.
//
// The importer opens the exporter's memfd (memfd.h) and holds a read lock (F_OFD_SETLK) on the
// bytes of the file as long as they are mapped. The system drops the lock with the process, so a
// kill of either side leaves nothing behind. The owner asks for a conflicting lock before it uses
// freed memory again.
//
// All state is under the lock of Allocations.
#ifndef RUNTIME_DEVICE_IMPORTED_FILE_H_
#define RUNTIME_DEVICE_IMPORTED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace openreg::device {

// The memory of another process's device, open here. Its locks end with it.
class ImportedFile {
 public:
  // Takes `file` over. Null, with a failure in the name of `function`, when too many are open.
  static std::shared_ptr<ImportedFile> Keep(const char* function, int file);
  ImportedFile(int file, int slot) : file_(file), slot_(slot) {}
  ~ImportedFile();
  ImportedFile(const ImportedFile&) = delete;
  ImportedFile& operator=(const ImportedFile&) = delete;
  int get() const { return file_; }

  // Takes the read lock of these bytes, which have to be Free here: false, with errno, when the
  // system refuses.
  bool Lock(uint64_t offset, uint64_t size);
  void Unlock(uint64_t offset);

  // Whether nothing that is locked by this file overlaps these bytes: releasing one of two ranges
  // would unlock what they have in common.
  bool Free(uint64_t offset, uint64_t size) const;

 private:
  const int file_;
  const int slot_;
  std::map<uint64_t, uint64_t> locked_;  // the end of each range, by its start
};

// Whether another process has locked some of these bytes of an own device.
bool IsLockedElsewhere(int device, uintptr_t address, size_t size);

// After a fork, in the child: its copies of our files would keep the locks when the parent dies.
// Async-signal-safe.
void CloseImportFilesInChild();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_FILE_H_
