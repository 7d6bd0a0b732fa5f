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

// Seal the size. If a mapped file shrank, the operating system would kill a process that accesses
// the missing pages.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL, which older headers do not define

struct Path {
  explicit Path(const MemfdPlace& place) {
    std::snprintf(text, sizeof(text), "/proc/%d/fd/%d", place.process, place.file);
  }
  char text[64];
};

// Returns the target of a link in /proc/<pid>/fd, or an empty string if the link does not exist.
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

int CreateMemfd(size_t size, uint64_t* number) {
  if (getrandom(number, sizeof(*number), 0) != sizeof(*number)) {
    return -1;
  }
  const MemfdName name(*number);
  int file = memfd_create(name.text, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  if (file < 0 && errno == EINVAL) {  // Linux before 6.3 does not support kNoExecSeal
    file = memfd_create(name.text, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (file < 0) {
    return -1;
  }
  if (ftruncate(file, static_cast<off_t>(size)) != 0 || fcntl(file, F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    close(file);
    errno = error;
    return -1;
  }
  return file;
}

bool MemfdExists(const MemfdPlace& place) { return Names(Target(Path(place).text), place.number); }

orError_t OpenMemfd(const char* function, const MemfdPlace& place, int* file, orError_t lost) {
  *file = -1;
  const Path path(place);
  const auto refuse = [&](int error) {
    return Fail(error == ENOENT ? lost : orErrorSystem,
                "%s: cannot open the file %s of the exporting process: %s; that process must be "
                "alive and belong to the same user",
                function, path.text, std::strerror(error));
  };
  // Open the file with O_PATH first, because opening an arbitrary file for writing can have side
  // effects.
  const int found = open(path.text, O_PATH | O_CLOEXEC);
  if (found < 0) {
    return refuse(errno);
  }
  const Path own({getpid(), found, place.number});
  const std::string name = Target(own.text);
  if (!Names(name, place.number)) {
    close(found);
    return Fail(lost,
                "%s: %s is %s, not the memory that the handle refers to, because the exporting "
                "process has exited",
                function, path.text, name.c_str());
  }
  const int opened = open(own.text, O_RDWR | O_CLOEXEC);
  const int error = errno;
  close(found);
  if (opened < 0) {
    return refuse(error);
  }
  const int seals = fcntl(opened, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    close(opened);
    return Fail(orErrorInvalidValue,
                "%s: %s was not created by this version of OpenReg (its size is not sealed)",
                function, path.text);
  }
  *file = opened;
  return orSuccess;
}

}  // namespace openreg::device
