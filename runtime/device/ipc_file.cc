// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions for files that other processes map.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/environment.h"
#include "runtime/device/error.h"
#include "runtime/device/ipc_handle.h"
#include "runtime/device/memfd.h"
#include "runtime/device/openreg_emulation.h"
#include "runtime/device/process.h"

namespace openreg::device {
namespace {

struct FileHandle {
  static constexpr uint32_t kMagic = 0x4f524946;
  static constexpr uint32_t kVersion = 1;
  uint32_t magic;
  uint32_t version;
  MemfdPlace place;
  uint64_t size;
  uint32_t of_device;

  bool Plausible() const { return size != 0 && size <= kMaxDeviceMemory && of_device <= 1; }
};

// A file that this process has mapped.
struct Mapping {
  void* memory;
  size_t size;
  int file;  // -1 if another process owns the file
};

class Mappings {
 public:
  static Mappings& Get() {
    // Never destroyed: kernels use the mappings until the end.
    static Mappings& mappings = *new Mappings;
    return mappings;
  }

  // Maps the file and takes ownership of its descriptor. If this fails, closes the descriptor.
  orError_t Add(const char* function, const FileHandle& handle, int file, bool own, void** memory) {
    const int access = handle.of_device != 0 ? PROT_READ : PROT_READ | PROT_WRITE;
    void* const mapped = mmap(nullptr, handle.size, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    const int error = errno;
    if (!own || mapped == MAP_FAILED) {
      close(file);
    }
    if (mapped == MAP_FAILED) {
      return Fail(orErrorSystem, "%s: cannot map %s: %s", function, ByteText(handle.size).c_str(),
                  std::strerror(error));
    }
    madvise(mapped, handle.size, MADV_DONTFORK);
    madvise(mapped, handle.size, MADV_DONTDUMP);
    const std::lock_guard lock(mutex_);
    mappings_.push_back({mapped, handle.size, own ? file : -1});
    *memory = mapped;
    return orSuccess;
  }

  orError_t Remove(const char* function, void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(mappings_.begin(), mappings_.end(),
                                    [=](const Mapping& known) { return known.memory == memory; });
    if (found == mappings_.end()) {
      return Fail(
          orErrorInvalidValue,
          "%s: no file is mapped at %p: pass an address from orIpcCreateFile or orIpcMapFile",
          function, memory);
    }
    munmap(memory, found->size);
    if (found->file >= 0) {
      close(found->file);
    }
    mappings_.erase(found);
    return orSuccess;
  }

 private:
  std::mutex mutex_;
  std::vector<Mapping> mappings_;
};

}  // namespace

extern "C" {

OPENREG_API orError_t orIpcCreateFile(orIpcFileHandle* handle, void** memory, size_t size) {
  if (const orError_t error = EnterDevice("orIpcCreateFile"); error != orSuccess) {
    return error;
  }
  FileHandle content{};
  content.size = RoundUp(size, kPage);
  if (handle == nullptr || memory == nullptr || size > kMaxDeviceMemory || !content.Plausible()) {
    return Fail(orErrorInvalidValue,
                "orIpcCreateFile: handle is %p, memory is %p, size is %zu bytes: handle and memory "
                "must not be null, and the size must be between 1 byte and %s",
                static_cast<void*>(handle), static_cast<void*>(memory), size,
                ByteText(kMaxDeviceMemory).c_str());
  }
  const int file = CreateMemfd(content.size, &content.place.number);
  if (file < 0) {
    return Fail(orErrorSystem, "orIpcCreateFile: cannot create a file of %s: %s",
                ByteText(size).c_str(), std::strerror(errno));
  }
  content.place.process = getpid();
  content.place.file = file;
  if (const orError_t error =
          Mappings::Get().Add("orIpcCreateFile", content, file, /*own=*/true, memory);
      error != orSuccess) {
    return error;
  }
  PackHandle(content, handle);
  return orSuccess;
}

OPENREG_API orError_t orIpcGetDeviceFile(orIpcFileHandle* handle, int device) {
  if (const orError_t error = EnterDevice("orIpcGetDeviceFile"); error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return Fail(orErrorInvalidValue,
                "orIpcGetDeviceFile: handle is null: pass the address of an orIpcFileHandle");
  }
  if (const orError_t error = CheckDevice("orIpcGetDeviceFile", device); error != orSuccess) {
    return error;
  }
  FileHandle content{};
  content.place = {getpid(), arena.file(device), arena.file_number(device)};
  content.size = arena.device(device).size;
  content.of_device = 1;
  PackHandle(content, handle);
  return orSuccess;
}

OPENREG_API orError_t orIpcGetFileOffset(size_t* offset, const void* pointer) {
  if (const orError_t error = EnterQuery("orIpcGetFileOffset"); error != orSuccess) {
    return error;
  }
  if (offset == nullptr) {
    return Fail(orErrorInvalidValue,
                "orIpcGetFileOffset: offset is null: pass the address of a size_t");
  }
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const int device = arena.DeviceOf(address);
  if (device < 0) {
    return Fail(orErrorInvalidDevicePointer,
                "orIpcGetFileOffset: %p is not device memory of this process", pointer);
  }
  *offset = address - arena.device(device).base;
  return orSuccess;
}

OPENREG_API orError_t orIpcMapFile(void** memory, size_t* size, const orIpcFileHandle* handle) {
  if (const orError_t error = EnterDevice("orIpcMapFile"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          CheckNotNull("orIpcMapFile", {{"memory", memory}, {"size", size}, {"handle", handle}});
      error != orSuccess) {
    return error;
  }
  FileHandle content;
  if (const orError_t error = UnpackHandle("orIpcMapFile", *handle, &content); error != orSuccess) {
    return error;
  }
  int file = -1;
  if (const orError_t error = OpenMemfd("orIpcMapFile", content.place, &file); error != orSuccess) {
    return error;
  }
  *size = content.size;
  return Mappings::Get().Add("orIpcMapFile", content, file, /*own=*/false, memory);
}

OPENREG_API orError_t orIpcUnmapFile(void* memory) {
  if (InForkedChild()) {
    return orSuccess;  // the child has no mappings
  }
  if (const orError_t error = EnterRelease("orIpcUnmapFile"); error != orSuccess) {
    return error;
  }
  return Mappings::Get().Remove("orIpcUnmapFile", memory);
}

OPENREG_API orError_t orIpcFileIsThere(int* there, const orIpcFileHandle* handle) {
  if (const orError_t error = EnterQuery("orIpcFileIsThere"); error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          CheckNotNull("orIpcFileIsThere", {{"there", there}, {"handle", handle}});
      error != orSuccess) {
    return error;
  }
  FileHandle content;
  if (const orError_t error = UnpackHandle("orIpcFileIsThere", *handle, &content);
      error != orSuccess) {
    return error;
  }
  *there = MemfdExists(content.place) ? 1 : 0;
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
