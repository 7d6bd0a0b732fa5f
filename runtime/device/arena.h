// SPDX-License-Identifier: BSD-3-Clause
//
// arena.h - the single address reservation of the process.
//
//      base                                base + half            (offset == half)
//      | device 0 | device 1 | ... | imports | device 0 | device 1 | ... | imports |
//      |<------- device half: PROT_NONE ---->|<------ kernel half: read-write ---->|
//
// The memory of each device is a sparse memfd that is mapped at the same offset in both halves. The
// distance between the address that PyTorch uses and the address that kernels use is therefore
// constant in a process, and a launch needs no system call. Blocks that other processes own are
// mapped into the import range. A gap after each range is never mapped, so an access just past the
// end of one range does not reach the next range.
//
// A forked child does not inherit the mappings, and core dumps do not contain them. The mappings
// remain until the process ends. A late access therefore causes a fault report and cannot reach an
// unrelated object. Reserve() is called once, under the lock of Initialize. Every other function
// only reads constants, or states the lock that it requires.
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
  // Reserves the addresses and maps the memory of all devices. If it fails, it undoes everything.
  orError_t Reserve(int device_count, size_t device_memory);

  bool reserved() const { return half_.size != 0; }
  int device_count() const { return device_count_; }

  // Return the window of the whole device half, of one device, or of the imports.
  const Window& half() const { return half_; }
  const Window& device(int index) const { return devices_[index]; }
  const Window& imports() const { return imports_; }

  // Returns the distance from the device half to the kernel half.
  ptrdiff_t offset() const { return static_cast<ptrdiff_t>(half_.size); }
  bool Contains(const void* pointer) const {
    return half_.Contains(reinterpret_cast<uintptr_t>(pointer));
  }
  void* KernelPointer(uintptr_t address) const {
    return reinterpret_cast<void*>(address + half_.size);
  }
  // Returns the address that a kernel must use for a device or host pointer.
  void* Translate(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return reinterpret_cast<void*>(half_.Contains(address) ? address + half_.size : address);
  }

  // Returns the device that owns an address in the device half, or -1 for the imports and the gaps.
  int DeviceOf(uintptr_t address) const;

  // Return a device's memfd, and the number in its name by which other processes identify it.
  int file(int device) const { return files_[device]; }
  uint64_t file_number(int device) const { return numbers_[device]; }

  // MapImport() maps `size` bytes of another process's file at `address` in the import range, in
  // both halves. UnmapImport() unmaps them. The caller must have reserved that part of the range
  // (allocation.cc).
  bool MapImport(uintptr_t address, size_t size, int file, size_t file_offset) const;
  void UnmapImport(uintptr_t address, size_t size) const;

  // Called in a forked child. Closes the device files. Otherwise, they would keep the device memory
  // alive after the parent has ended. Async-signal-safe.
  void CloseFilesInChild() const;

  // Returns pages of a device to the operating system. Afterwards, they read as zero.
  bool PunchHole(int device, uintptr_t address, size_t size) const;

 private:
  int device_count_ = 0;
  Window half_{0, 0};
  Window devices_[OPENREG_MAX_DEVICES] = {};
  Window imports_{0, 0};
  int files_[OPENREG_MAX_DEVICES] = {};
  uint64_t numbers_[OPENREG_MAX_DEVICES] = {};
};

// The arena of the process. It is never destroyed.
extern constinit Arena arena;

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ARENA_H_
