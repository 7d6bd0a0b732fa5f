// SPDX-License-Identifier: BSD-3-Clause
//
// memfd.h - anonymous files, which no folder contains and which other processes of the user find in
// /proc.
//
// The name of each file contains a random number. A process that opens a file checks it, because
// process ids and descriptors are reused. The size of a file is sealed, so a mapping never loses
// its pages. If the kernel supports it, the file cannot be executed. Stateless; callable from every
// thread.
#ifndef RUNTIME_DEVICE_MEMFD_H_
#define RUNTIME_DEVICE_MEMFD_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::device {

// Formats the name of the memfd with this number, as shown by /proc/<pid>/fd.
struct MemfdName {
  explicit MemfdName(uint64_t number);
  char text[40];
};

// Chooses a number and creates a zeroed file with that name and size. Returns -1, with errno set,
// if the operating system refuses.
int CreateMemfd(size_t size, uint64_t* number);

// The place of such a file: a process, and the descriptor under which the process has it open.
struct MemfdPlace {
  int32_t process;
  int32_t file;  // descriptor in that process
  uint64_t number;
};

// Returns whether the process of `place` is alive and has the file open.
bool MemfdExists(const MemfdPlace& place);

// Opens the file if its name matches. Fails with `function` in the message: orErrorProcessEnded if
// the file does not exist (or `lost`, if given), orErrorInvalidValue if its size is not sealed,
// orErrorSystem if the operating system refuses. The caller closes the file.
orError_t OpenMemfd(const char* function, const MemfdPlace& place, int* file,
                    orError_t lost = orErrorProcessEnded);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_MEMFD_H_
