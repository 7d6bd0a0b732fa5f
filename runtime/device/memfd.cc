// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/device/error.h"

namespace openreg::device {
namespace {

struct Path {
  explicit Path(const MemfdPlace& place) {
    std::snprintf(text, sizeof(text), "/proc/%d/fd/%d", place.process, place.file);
  }
  char text[64];
};

// What a link of /proc/<pid>/fd names; empty if there is none.
std::string Target(const char* path) {
  char name[128];
  const ssize_t length = readlink(path, name, sizeof(name));
  return std::string(name, length > 0 ? static_cast<size_t>(length) : 0);
}

bool Names(const std::string& target, uint64_t number) {
  return target.starts_with(std::string("/memfd:") + MemfdName(number).text);
}

}  // namespace

MemfdName::MemfdName(uint64_t number) {
  std::snprintf(text, sizeof(text), "openreg-%016" PRIx64, number);
}

int CreateMemfd(uint64_t* number) {
  if (getrandom(number, sizeof(*number), 0) != sizeof(*number)) {
    return -1;
  }
  return memfd_create(MemfdName(*number).text, MFD_CLOEXEC);
}

bool IsThere(const MemfdPlace& place) { return Names(Target(Path(place).text), place.number); }

orError_t OpenMemfd(const char* function, const MemfdPlace& place, int* file, orError_t lost) {
  const Path path(place);
  *file = open(path.text, O_RDWR | O_CLOEXEC);
  if (*file < 0) {
    const int error = errno;
    return Fail(
        error == ENOENT ? lost : orErrorSystem,
        "%s: the file %s of the exporting process does not open: %s; that process has to live, and "
        "to belong to the same user",
        function, path.text, std::strerror(error));
  }
  const std::string found = Target(Path({getpid(), *file, place.number}).text);
  if (Names(found, place.number)) {
    return orSuccess;
  }
  close(*file);
  *file = -1;
  return Fail(lost,
              "%s: %s is %s, not the memory that the handle names: the exporting process is gone",
              function, path.text, found.c_str());
}

}  // namespace openreg::device
