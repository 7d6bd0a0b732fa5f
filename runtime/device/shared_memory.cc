// SPDX-License-Identifier: BSD-3-Clause
//
// Implements the C functions that share parts of allocations with other processes, in stream order.
//
// A handle identifies three things: a range of a memfd, a process that has the memfd open, and a
// slot on the exporter's shared page (shared_page.h). The slot captures the work that was queued on
// the exporter's stream. The importer first locks the range (imported_file.h) and then removes the
// serial number from the slot. The exporter may therefore be the owner or an importer of the
// memory. If an importer is killed, its imports end. The ranges of one file share a descriptor.
//
// The lock of Allocations guards all state. It is not held during waits for a stream.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/device/allocation.h"
#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/exports.h"
#include "runtime/device/imported_file.h"
#include "runtime/device/imported_memory.h"
#include "runtime/device/ipc_handle.h"
#include "runtime/device/memfd.h"
#include "runtime/device/process.h"
#include "runtime/device/shared_page.h"
#include "runtime/device/stream.h"
#include "runtime/device/submission.h"

namespace openreg::device {
namespace {

// The content of an orIpcMemoryHandle.
struct MemoryHandle {
  static constexpr uint16_t kMagic = 0x6f4d;  // "oM"
  static constexpr uint8_t kVersion = 2;

  uint16_t magic;
  uint8_t version;
  uint8_t device;
  int32_t process;  // process id of the exporter
  int32_t file;     // this and `page_file` are descriptors of the exporter
  int32_t page_file;
  uint64_t number;  // identifies the file
  uint64_t offset;
  uint64_t size;
  uint64_t page_number;
  uint64_t serial;

  bool Plausible() const { return size != 0 && size <= kMaxDeviceMemory && serial != 0; }
  SharedPage::Range range() const { return {number, offset, size, device}; }
};

// Returns the files of current imports. The key is the number of the file.
std::multimap<uint64_t, std::weak_ptr<ImportedFile>>& ImportedFiles() {
  // Never destroyed, because blocks may be freed until the process ends.
  static auto& files = *new std::multimap<uint64_t, std::weak_ptr<ImportedFile>>;
  return files;
}

// Finds a descriptor of the exporter's file through which these bytes are not locked yet. If there
// is none, opens a new one.
orError_t FindFile(const char* function, const MemoryHandle& exported,
                   std::shared_ptr<ImportedFile>* found) {
  auto& files = ImportedFiles();
  const auto [first, last] = files.equal_range(exported.number);
  for (auto entry = first; entry != last; ++entry) {
    *found = entry->second.lock();
    if (*found != nullptr && (*found)->Free(exported.offset, exported.size)) {
      return orSuccess;
    }
  }
  int opened;
  if (const orError_t error =
          OpenMemfd(function, {exported.process, exported.file, exported.number}, &opened);
      error != orSuccess) {
    return error;
  }
  *found = ImportedFile::Keep(function, opened);
  if (*found == nullptr) {
    return orErrorSystem;
  }
  std::erase_if(files, [](const auto& entry) { return entry.second.expired(); });
  files.emplace(exported.number, *found);
  return orSuccess;
}

orError_t FindPart(const char* function, const void* pointer, size_t size, Allocation** found) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  *found = Allocations::Get().FindLocked(address);
  if (*found == nullptr || size == 0 || size > (*found)->base + (*found)->size - address) {
    return Fail(
        orErrorInvalidDevicePointer,
        "%s of %zu bytes at %p: the bytes are not part of one live allocation of device memory",
        function, size, pointer);
  }
  return orSuccess;
}

orError_t Export(orIpcMemoryHandle* handle, void* pointer, size_t size, const StreamQueue& queue) {
  constexpr const char* kFunction = "orIpcExport";
  std::shared_ptr<MappedPage> own;
  uint64_t serial;
  MarkWord word;
  uint64_t position;
  if (const orError_t error = MappedPage::Own(kFunction, &own); error != orSuccess) {
    return error;
  }
  if (const orError_t error = Mark(queue, &word, &position); error != orSuccess) {
    return error;
  }
  const std::lock_guard lock(Allocations::Get().mutex());
  Allocation* allocation;
  if (const orError_t error = FindPart(kFunction, pointer, size, &allocation); error != orSuccess) {
    return error;
  }
  if (allocation->device != queue.stream()->device()) {
    return Fail(orErrorInvalidDevice,
                "%s of %p: the memory is on device %d, but the stream is on device %d", kFunction,
                pointer, allocation->device, queue.stream()->device());
  }
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  // Drop earlier exports of these bytes that have been imported. Otherwise, their records would
  // accumulate if a program exports the same bytes repeatedly.
  (void)SweepExports(address, address, address + 1);
  const Import* const import = allocation->import;
  const int device = allocation->device;
  MemoryHandle exported{};
  exported.device = static_cast<uint8_t>(device);
  exported.process = own->place().process;
  exported.file = import != nullptr ? import->file->get() : arena.file(device);
  exported.page_file = own->place().file;
  exported.number = import != nullptr ? import->number : arena.file_number(device);
  exported.offset = import != nullptr ? import->offset + (address - allocation->base)
                                      : address - arena.device(device).base;
  exported.size = size;
  exported.page_number = own->place().number;
  if (const orError_t error = AllocateSlot(kFunction, exported.range(), &serial);
      error != orSuccess) {
    return error;
  }
  own->page().slot(serial).capture.store(word, std::memory_order_release);
  AddExport(address, size, serial);
  allocation->exported = true;
  exported.serial = serial;
  PackHandle(exported, handle);
  return orSuccess;
}

orError_t FailTaken(const MemoryHandle& exported) {
  return Fail(
      orErrorInvalidValue,
      "orIpcImport: the handle of process %d was already imported, or its memory was freed. "
      "A handle can be imported only once: export the memory again",
      exported.process);
}

orError_t TakeHandle(MappedPage& page, const MemoryHandle& exported) {
  return page.Take(exported.serial) ? orSuccess : FailTaken(exported);
}

orError_t ImportLocked(void** pointer, const MemoryHandle& exported, MappedPage& page) {
  constexpr const char* kFunction = "orIpcImport";
  Allocation* allocation;
  if (exported.number == arena.file_number(exported.device)) {
    *pointer = reinterpret_cast<void*>(arena.device(exported.device).base + exported.offset);
    const orError_t error = FindPart(kFunction, *pointer, exported.size, &allocation);
    return error == orSuccess ? TakeHandle(page, exported) : error;
  }
  if (Allocation* const known = FindImportLocked(exported.number, exported.offset, exported.size)) {
    if (const orError_t error = TakeHandle(page, exported); error != orSuccess) {
      return error;
    }
    ++known->import->opens;
    *pointer = reinterpret_cast<void*>(known->base);
    return orSuccess;
  }

  std::shared_ptr<ImportedFile> file;
  if (const orError_t error = FindFile(kFunction, exported, &file); error != orSuccess) {
    return error;
  }
  struct stat status {};
  if (fstat(file->get(), &status) != 0 || exported.offset > static_cast<uint64_t>(status.st_size) ||
      exported.size > static_cast<uint64_t>(status.st_size) - exported.offset) {
    return Fail(
        orErrorInvalidValue,
        "%s: the handle of process %d is corrupt, because %zu bytes at offset %zu exceed the "
        "file of the exported memory: pass the handle exactly as orIpcExport returned it",
        kFunction, exported.process, static_cast<size_t>(exported.size),
        static_cast<size_t>(exported.offset));
  }
  if (!file->Lock(exported.offset, exported.size)) {
    return Fail(orErrorSystem, "%s: cannot lock the exported memory: %s", kFunction,
                std::strerror(errno));
  }
  uintptr_t base;
  if (const orError_t error =
          MapImportLocked(kFunction, {file, 1, exported.number, exported.offset}, exported.size,
                          exported.device, &base);
      error != orSuccess) {
    file->Unlock(exported.offset);
    return error;
  }
  if (const orError_t error = TakeHandle(page, exported); error != orSuccess) {
    ReleaseImportLocked(Allocations::Get().FindLocked(base));
    return error;
  }
  *pointer = reinterpret_cast<void*>(base);
  return orSuccess;
}

orError_t FindImported(void* pointer, Allocation** found) {
  *found = Allocations::Get().FindLocked(reinterpret_cast<uintptr_t>(pointer));
  if (*found == nullptr || (*found)->import == nullptr ||
      (*found)->base != reinterpret_cast<uintptr_t>(pointer)) {
    return Fail(orErrorInvalidDevicePointer,
                "orIpcRelease: %p was not returned by orIpcImport or was already released",
                pointer);
  }
  return orSuccess;
}

orError_t Release(void* pointer) {
  const std::lock_guard lock(Allocations::Get().mutex());
  Allocation* found;
  const orError_t error = FindImported(pointer, &found);
  if (error == orSuccess) {
    ReleaseImportLocked(found);
  }
  return error;
}

orError_t ImportInOrder(void** pointer, const MemoryHandle& exported, const StreamQueue& queue) {
  if (exported.device >= arena.device_count() || exported.device != queue.stream()->device()) {
    return Fail(orErrorInvalidDevice,
                "orIpcImport: the memory is on device %d, but the stream is on device %d and this "
                "process has %d devices (OPENREG_DEVICE_COUNT)",
                exported.device, queue.stream()->device(), arena.device_count());
  }
  std::shared_ptr<MappedPage> page;
  if (const orError_t error = MappedPage::Open(
          "orIpcImport", {exported.process, exported.page_file, exported.page_number},
          orErrorProcessEnded, &page);
      error != orSuccess) {
    return error;
  }
  MarkWord word = 0;
  SharedPage::Range range{};
  if (!page->Read(exported.serial, &word, &range)) {
    return FailTaken(exported);
  }
  if (range != exported.range()) {
    return Fail(orErrorInvalidValue,
                "orIpcImport: the handle of process %d is corrupt, because its address range is "
                "not the one that the process exported: pass the handle exactly as orIpcExport "
                "returned it",
                exported.process);
  }
  {
    const std::lock_guard lock(Allocations::Get().mutex());
    if (const orError_t error = ImportLocked(pointer, exported, *page); error != orSuccess) {
      *pointer = nullptr;
      return error;
    }
  }
  const orError_t error = MappedPage::EnqueueWait(page, word, queue);
  if (error != orSuccess) {
    if (exported.number != arena.file_number(exported.device)) {
      (void)Release(*pointer);
    }
    *pointer = nullptr;
  }
  return error;
}

orError_t ReleaseInOrder(void* pointer, const StreamQueue& queue) {
  if (queue.stream()->Idle()) {
    return Release(pointer);
  }
  {
    const std::lock_guard lock(Allocations::Get().mutex());
    Allocation* found;
    if (const orError_t error = FindImported(pointer, &found); error != orSuccess) {
      return error;
    }
  }
  return queue.EnqueueOwnKernel(
      Command::kOnWorker, "release to another process",
      [](void* arguments) {
        void* imported;
        std::memcpy(&imported, arguments, sizeof(imported));
        (void)Release(imported);  // fails if it was released twice, or by a device reset
        return orSuccess;
      },
      pointer);
}

// The reason why captured streams refuse these calls: a handle refers to queued work, but captured
// work is not queued until its graph is launched.
constexpr char kStreamOrdered[] =
    "and memory is shared in stream order, but captured work does not run: do it before or "
    "after the capture";

}  // namespace

extern "C" {

OPENREG_API orError_t orIpcExport(orIpcMemoryHandle* handle, void* pointer, size_t size,
                                  orStream_t stream_handle) {
  Submission submission("orIpcExport");
  StreamQueue queue;
  if (const orError_t error = submission.Enter(stream_handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = submission.QueueUncaptured(kStreamOrdered, &queue);
      error != orSuccess) {
    return error;
  }
  if (handle == nullptr) {
    return Fail(orErrorInvalidValue,
                "orIpcExport: handle is null: pass the address of an orIpcMemoryHandle");
  }
  return Export(handle, pointer, size, queue);
}

OPENREG_API orError_t orIpcImport(void** pointer, const orIpcMemoryHandle* handle,
                                  orStream_t stream_handle) {
  Submission submission("orIpcImport");
  StreamQueue queue;
  if (const orError_t error = submission.Enter(stream_handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = submission.QueueUncaptured(kStreamOrdered, &queue);
      error != orSuccess) {
    return error;
  }
  if (const orError_t error =
          CheckNotNull("orIpcImport", {{"pointer", pointer}, {"handle", handle}});
      error != orSuccess) {
    return error;
  }
  *pointer = nullptr;
  MemoryHandle exported;
  if (const orError_t error = UnpackHandle("orIpcImport", *handle, &exported); error != orSuccess) {
    return error;
  }
  return ImportInOrder(pointer, exported, queue);
}

OPENREG_API orError_t orIpcRelease(void* pointer, orStream_t stream_handle) {
  if (InForkedChild()) {
    return orSuccess;
  }
  // Refuse the call in the release function of a graph, because the call may wait for room in the
  // stream.
  if (thread_state.running != nullptr) {
    return Refuse("orIpcRelease", /*only_reads=*/false);
  }
  Submission submission("orIpcRelease");
  StreamQueue queue;
  if (const orError_t error = submission.Find(stream_handle); error != orSuccess) {
    return error;
  }
  if (const orError_t error = submission.QueueUncaptured(kStreamOrdered, &queue);
      error != orSuccess) {
    return error;
  }
  return ReleaseInOrder(pointer, queue);
}

OPENREG_API orError_t orIpcIsExported(int* exported, const void* pointer, size_t size) {
  if (const orError_t error = EnterQuery("orIpcIsExported"); error != orSuccess) {
    return error;
  }
  if (exported == nullptr) {
    return Fail(orErrorInvalidValue,
                "orIpcIsExported: exported is null: pass the address of an int");
  }
  const std::lock_guard lock(Allocations::Get().mutex());
  Allocation* allocation;
  if (const orError_t error = FindPart("orIpcIsExported", pointer, size, &allocation);
      error != orSuccess) {
    return error;
  }
  const auto from = reinterpret_cast<uintptr_t>(pointer);
  const bool is_exported =
      allocation->exported &&
      (SweepExports(allocation->base, from, from + size) ||
       (allocation->import == nullptr && IsLockedElsewhere(allocation->device, from, size)));
  *exported = is_exported ? 1 : 0;
  return orSuccess;
}

}  // extern "C"
}  // namespace openreg::device
