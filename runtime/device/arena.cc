// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "runtime/device/error.h"
#include "runtime/device/memfd.h"

namespace openreg::device {

constinit Arena arena;

namespace {

void* Address(uintptr_t address) { return reinterpret_cast<void*>(address); }

// Reserves a range of addresses. The mapping is inaccessible, so it uses only address space.
void* ReserveAddresses(void* where, size_t size, int flags) {
  return mmap(where, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// Maps a range of a file twice: at `address` in the device half and at the corresponding address in
// the kernel half.
bool MapTwice(uintptr_t address, ptrdiff_t offset, size_t size, int file, size_t file_offset) {
  constexpr int kFlags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  void* device = Address(address);
  void* kernel = Address(address + static_cast<size_t>(offset));
  if (mmap(device, size, PROT_NONE, kFlags, file, static_cast<off_t>(file_offset)) == MAP_FAILED ||
      mmap(kernel, size, PROT_READ | PROT_WRITE, kFlags, file, static_cast<off_t>(file_offset)) ==
          MAP_FAILED) {
    return false;
  }
  for (void* view : {device, kernel}) {
    // Exclude the view from forks. If a child shared it, the child could change the parent's
    // memory, for example by trimming it.
    if (madvise(view, size, MADV_DONTFORK) != 0 || madvise(view, size, MADV_DONTDUMP) != 0) {
      return false;
    }
  }
  return true;
}

// Fails because a system call failed for a reservation of `size` bytes. The message names the limit
// that caused the failure, if it is known.
orError_t FailSystem(const char* what, size_t size, int error) {
  rlimit space{};
  getrlimit(RLIMIT_AS, &space);
  if (error == ENOMEM && space.rlim_cur != RLIM_INFINITY) {
    return Fail(
        orErrorSystem,
        "%s of %s failed: the address space limit (RLIMIT_AS, ulimit -v) is %s; raise it or "
        "lower OPENREG_DEVICE_MEMORY",
        what, ByteText(size).c_str(), ByteText(space.rlim_cur).c_str());
  }
  if (error == EMFILE) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    return Fail(orErrorSystem,
                "%s failed: the process may have at most %llu open files (RLIMIT_NOFILE, ulimit "
                "-n); raise the limit",
                what, static_cast<unsigned long long>(files.rlim_cur));
  }
  return Fail(orErrorSystem, "%s of %s failed: %s (errno %d)", what, ByteText(size).c_str(),
              std::strerror(error), error);
}

}  // namespace

orError_t Arena::Reserve(int device_count, size_t device_memory) {
  rlimit file_limit{};
  // Check the limit in advance, because a process that exceeds it is ended by SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &file_limit) == 0 && file_limit.rlim_cur != RLIM_INFINITY &&
      file_limit.rlim_cur < device_memory) {
    return Fail(orErrorSystem,
                "each device's memory needs a file of %s, but the file size limit (RLIMIT_FSIZE, "
                "ulimit -f) is %s; raise it or lower OPENREG_DEVICE_MEMORY",
                ByteText(device_memory).c_str(), ByteText(file_limit.rlim_cur).c_str());
  }

  // Each part ends with a gap of one large page. The import range is as large as all device ranges
  // together.
  const size_t stride = device_memory + kLargePage;
  const size_t count = static_cast<size_t>(device_count);
  const size_t import_size = count * device_memory;
  const size_t half = count * stride + import_size + kLargePage;
  void* reservation = ReserveAddresses(nullptr, 2 * half + kLargePage, 0);
  if (reservation == MAP_FAILED) {
    return FailSystem("reservation", 2 * half, errno);
  }
  // Align the start so that the operating system can use large pages.
  const auto start = reinterpret_cast<uintptr_t>(reservation);
  const uintptr_t base = RoundUp(start, kLargePage);
  if (base != start) {
    munmap(reservation, base - start);
  }
  if (const uintptr_t rest = start + kLargePage - base; rest != 0) {
    munmap(Address(base + 2 * half), rest);
  }

  int opened = 0;
  auto undo = [&](const char* what, size_t size) {
    const int error = errno;
    munmap(Address(base), 2 * half);
    while (opened > 0) {
      close(files_[--opened]);
    }
    return FailSystem(what, size, error);
  };
  // Exclude the reservation from core dumps and forks. A child may map its own memory at these
  // addresses.
  if (madvise(Address(base), 2 * half, MADV_DONTFORK) != 0 ||
      madvise(Address(base), 2 * half, MADV_DONTDUMP) != 0) {
    return undo("madvise", 2 * half);
  }
  for (int index = 0; index < device_count; ++index) {
    const int file = CreateMemfd(device_memory, &numbers_[index]);
    if (file < 0) {
      return undo("memfd_create for a device's memory", device_memory);
    }
    files_[opened++] = file;
    devices_[index] = {base + static_cast<size_t>(index) * stride, device_memory};
    if (!MapTwice(devices_[index].base, static_cast<ptrdiff_t>(half), device_memory, file, 0)) {
      return undo("mapping a device's memory", device_memory);
    }
    // Prefer large pages. This has an effect if transparent_hugepage/shmem_enabled is "advise".
    madvise(Address(devices_[index].base + half), device_memory, MADV_HUGEPAGE);
  }
  imports_ = {base + count * stride, import_size};
  device_count_ = device_count;
  half_ = {base, half};
  return orSuccess;
}

int Arena::DeviceOf(uintptr_t address) const {
  for (int index = 0; index < device_count_; ++index) {
    if (devices_[index].Contains(address)) {
      return index;
    }
  }
  return -1;
}

bool Arena::MapImport(uintptr_t address, size_t size, int file, size_t file_offset) const {
  if (MapTwice(address, offset(), size, file, file_offset)) {
    return true;
  }
  const int error = errno;
  UnmapImport(address, size);
  errno = error;
  return false;
}

void Arena::UnmapImport(uintptr_t address, size_t size) const {
  // The addresses stay reserved. Remapping an existing mapping needs no memory, so it cannot fail.
  for (const uintptr_t view : {address, address + half_.size}) {
    ReserveAddresses(Address(view), size, MAP_FIXED);
    madvise(Address(view), size, MADV_DONTFORK);
    madvise(Address(view), size, MADV_DONTDUMP);
  }
}

void Arena::CloseFilesInChild() const {
  for (int index = 0; index < device_count_; ++index) {
    close(files_[index]);
  }
}

bool Arena::PunchHole(int device, uintptr_t address, size_t size) const {
  return fallocate(files_[device], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(address - devices_[device].base),
                   static_cast<off_t>(size)) == 0;
}

}  // namespace openreg::device
