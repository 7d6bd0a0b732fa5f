// SPDX-License-Identifier: BSD-3-Clause
//
// memfd.h - files without a name in any folder, which other processes of the user find in /proc.
//
// Each has a random number in its name, by which a process that opens it checks that it is the
// right one: process ids and descriptors are used again. Their size is sealed, so a mapping never
// loses its pages, and they cannot be executed where the system knows how to forbid that.
// Stateless; callable from every thread.
#ifndef RUNTIME_DEVICE_MEMFD_H_
#define RUNTIME_DEVICE_MEMFD_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::device {

// The name of a memfd with this number, as /proc/<pid>/fd shows it.
struct MemfdName {
  explicit MemfdName(uint64_t number);
  char text[40];
};

// Makes a number and a file of that name and size, full of zeros. -1, with errno, when the system
// refuses.
int CreateMemfd(size_t size, uint64_t* number);

// Where a process has such a file open.
struct MemfdPlace {
  int32_t process;
  int32_t file;  // descriptor in that process
  uint64_t number;
};

// Whether that process lives and has the file open.
bool IsThere(const MemfdPlace& place);

// Opens the file, and no other: one of another name is not opened. Fails in the name
// of `function`: orErrorProcessEnded if it is not there (`lost` instead, if that is given),
// orErrorInvalidValue if its size is not sealed, orErrorSystem if the system refuses. The caller
// closes it.
orError_t OpenMemfd(const char* function, const MemfdPlace& place, int* file,
                    orError_t lost = orErrorProcessEnded);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_MEMFD_H_
