// SPDX-License-Identifier: BSD-3-Clause
//
// arena.h - the one address reservation of the process.
//
//      base                                base + half            (offset == half)
//      | device 0 | device 1 | ... | imports | device 0 | device 1 | ... | imports |
//      |<------- device half: PROT_NONE ---->|<------ kernel half: read-write ---->|
//
// The memory of each device is a sparse memfd, mapped at the same place of both halves; so one
// offset, constant for the process, leads from the address that PyTorch sees to the one that
// kernels use, and a launch needs no system call. Blocks of other processes are mapped into the
// import range. Between the ranges lies a gap that is never mapped, so that running past the end of
// one does not reach the next.
//
// The mappings are not inherited by a fork and are not part of a core dump. They stay until the
// process ends: a late access is then a fault report and not a foreign object. Reserve() is called
// once, under the lock of Initialize; everything else is constant afterwards, or says which lock it
// needs.
#ifndef RUNTIME_DEVICE_ARENA_H_
#define RUNTIME_DEVICE_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device/openreg.h"

namespace openreg::device {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kLargePage = size_t{2} << 20;
inline constexpr size_t kMaxDeviceMemory = size_t{1} << 40;

constexpr size_t RoundUp(size_t size, size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// One contiguous part of the device half.
struct Window {
  uintptr_t base;
  size_t size;
  bool Contains(uintptr_t address) const { return address - base < size; }
};

class Arena {
 public:
  // Reserves and maps everything, or fails and leaves nothing behind.
  orError_t Reserve(int device_count, size_t device_memory);

  bool reserved() const { return half_.size != 0; }
  int device_count() const { return device_count_; }

  // The device half, the part of one device and the part for imports.
  const Window& half() const { return half_; }
  const Window& device(int index) const { return devices_[index]; }
  const Window& imports() const { return imports_; }

  // From the device half to the kernel half.
  ptrdiff_t offset() const { return static_cast<ptrdiff_t>(half_.size); }
  bool Contains(const void* pointer) const {
    return half_.Contains(reinterpret_cast<uintptr_t>(pointer));
  }
  void* KernelPointer(uintptr_t address) const {
    return reinterpret_cast<void*>(address + half_.size);
  }
  // As a kernel sees it, be it device or host memory.
  void* Translate(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return reinterpret_cast<void*>(half_.Contains(address) ? address + half_.size : address);
  }

  // Device that an address of the device half belongs to; -1 for imports and gaps.
  int DeviceOf(uintptr_t address) const;

  // The memfd of a device, and the number in its name, by which other processes know it.
  int file(int device) const { return files_[device]; }
  uint64_t file_number(int device) const { return numbers_[device]; }

  // Maps `size` bytes of another process's file at `address` of the import range, in both halves,
  // or takes them away again. The caller has reserved that range for itself (allocation.cc).
  bool MapImport(uintptr_t address, size_t size, int file, size_t file_offset) const;
  void UnmapImport(uintptr_t address, size_t size) const;

  // After a fork, in the child: closes the files of the devices, which would otherwise keep their
  // memory when the parent has ended. Async-signal-safe.
  void CloseFilesInChild() const;

  // Gives pages of a device back to the system; they read as zero afterwards.
  bool PunchHole(int device, uintptr_t address, size_t size) const;

 private:
  int device_count_ = 0;
  Window half_{0, 0};
  Window devices_[OPENREG_MAX_DEVICES] = {};
  Window imports_{0, 0};
  int files_[OPENREG_MAX_DEVICES] = {};
  uint64_t numbers_[OPENREG_MAX_DEVICES] = {};
};

// The arena of the process; never destroyed.
extern constinit Arena arena;

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ARENA_H_
