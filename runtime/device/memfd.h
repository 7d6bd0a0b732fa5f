// SPDX-License-Identifier: BSD-3-Clause
//
// memfd.h - anonymous files. They appear in no folder, but other processes of the same user can
// open them through /proc.
//
// The name of each file contains a random number. A process that opens a file checks this number,
// because process ids and descriptors are reused. The size of a file is sealed, so a mapping never
// loses its pages. If the Linux kernel supports it, the file is also sealed against execution. The
// functions have no state, and any thread may call them.
#ifndef RUNTIME_DEVICE_MEMFD_H_
#define RUNTIME_DEVICE_MEMFD_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::device {

// Formats the name of the memfd with this number, as /proc/<pid>/fd shows it.
struct MemfdName {
  explicit MemfdName(uint64_t number);
  char text[40];
};

// Chooses a number and creates a zero-filled file of this size whose name contains the number. If
// the operating system refuses, sets errno and returns -1.
int CreateMemfd(size_t size, uint64_t* number);

// The place of such a file: a process, and the descriptor of the file in that process.
struct MemfdPlace {
  int32_t process;
  int32_t file;  // descriptor in that process
  uint64_t number;
};

// Returns whether the process in `place` is alive and has the file open.
bool MemfdExists(const MemfdPlace& place);

// Opens the file and checks its name. Fails with `function` in the message. The error is
// orErrorProcessEnded (or `lost`, if given) if the file does not exist, orErrorInvalidValue if its
// size is not sealed, and orErrorSystem if the operating system refuses. The caller must close the
// file.
orError_t OpenMemfd(const char* function, const MemfdPlace& place, int* file,
                    orError_t lost = orErrorProcessEnded);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_MEMFD_H_
