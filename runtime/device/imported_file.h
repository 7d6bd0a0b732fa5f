// SPDX-License-Identifier: BSD-3-Clause
//
// imported_file.h - the open files that hold other processes' device memory, and the locks that
// mark imported bytes.
//
// The importer opens the exporter's memfd (memfd.h) and holds a read lock (F_OFD_SETLK) on the
// imported bytes as long as they are mapped. The operating system drops the lock when the process
// ends, so nothing remains if either process is killed. The owner requests a conflicting lock
// before it reuses freed memory.
//
// The lock of Allocations guards all state.
#ifndef RUNTIME_DEVICE_IMPORTED_FILE_H_
#define RUNTIME_DEVICE_IMPORTED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace openreg::device {

// The memory file of another process's device, opened by this process. Its locks end when it is
// closed.
class ImportedFile {
 public:
  // Creates the object, which takes ownership of `file`. Returns null, and fails with `function` in
  // the message, if too many files are open.
  static std::shared_ptr<ImportedFile> Keep(const char* function, int file);
  ImportedFile(int file, int slot) : file_(file), slot_(slot) {}
  ~ImportedFile();
  ImportedFile(const ImportedFile&) = delete;
  ImportedFile& operator=(const ImportedFile&) = delete;
  int get() const { return file_; }

  // Takes a read lock on these bytes. Free(offset, size) must hold. Returns false and sets errno if
  // the operating system refuses.
  bool Lock(uint64_t offset, uint64_t size);
  void Unlock(uint64_t offset);

  // Returns whether no range locked through this file overlaps these bytes. (Releasing one of two
  // overlapping ranges would also unlock the part they share.)
  bool Free(uint64_t offset, uint64_t size) const;

 private:
  const int file_;
  const int slot_;
  std::map<uint64_t, uint64_t> locked_;  // maps the start of each locked range to its end
};

// Returns whether another process has locked any of these bytes, which belong to one of our
// devices.
bool IsLockedElsewhere(int device, uintptr_t address, size_t size);

// Called in a forked child. Closes the child's copies of our files, which would keep the locks
// after the parent has ended. Async-signal-safe.
void CloseImportFilesInChild();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_FILE_H_
