// SPDX-License-Identifier: BSD-3-Clause
//
// imported_file.h - open files that contain the device memory of other processes, and the locks
// that mark imported bytes.
//
// The importer opens the exporter's memfd (memfd.h). It holds a read lock (F_OFD_SETLK) on the
// imported bytes while they are mapped. The operating system releases the lock when the process
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

// The memory file of another process's device, opened by this process. Closing the file releases
// its locks.
class ImportedFile {
 public:
  // Creates the object, which takes ownership of `file`. If too many files are open, returns null
  // and fails with `function` in the message.
  static std::shared_ptr<ImportedFile> Keep(const char* function, int file);
  ImportedFile(int file, int slot) : file_(file), slot_(slot) {}
  ~ImportedFile();
  ImportedFile(const ImportedFile&) = delete;
  ImportedFile& operator=(const ImportedFile&) = delete;
  int get() const { return file_; }

  // Acquires a read lock on these bytes. Free(offset, size) must be true. Returns false and sets
  // errno if the operating system refuses.
  bool Lock(uint64_t offset, uint64_t size);
  void Unlock(uint64_t offset);

  // Returns whether no range locked through this file overlaps these bytes. (If two locked ranges
  // overlapped, releasing one would also unlock their common bytes.)
  bool Free(uint64_t offset, uint64_t size) const;

 private:
  const int file_;
  const int slot_;
  std::map<uint64_t, uint64_t> locked_;  // maps the start of each locked range to its end
};

// Returns whether another process has locked any of these bytes of one of our devices.
bool IsLockedElsewhere(int device, uintptr_t address, size_t size);

// Called in a forked child. Closes the child's copies of our files. Otherwise, they would keep the
// locks after the parent has ended. Async-signal-safe.
void CloseImportFilesInChild();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_IMPORTED_FILE_H_
