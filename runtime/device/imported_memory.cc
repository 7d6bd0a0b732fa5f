// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/imported_memory.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "runtime/device/arena.h"
#include "runtime/device/error.h"
#include "runtime/device/exports.h"

namespace openreg::device {
namespace {

// Identifies bytes in a file: the file's number, the offset, and the size.
using ImportKey = std::tuple<uint64_t, uint64_t, size_t>;

// Returns the table of imports, which contains the address of each.
std::map<ImportKey, uintptr_t>& Imported() {
  // Never destroyed, because blocks may be freed until the process ends.
  static auto& imported = *new std::map<ImportKey, uintptr_t>;
  return imported;
}

// Unmaps an import, releases its file lock and removes its allocation.
void CloseImportLocked(const Allocation& allocation) {
  Allocations& allocations = Allocations::Get();
  const std::unique_ptr<Import> import(allocation.import);
  if (allocation.exported) {
    RetractExports(allocation.base, allocation.size);
  }
  Imported().erase({import->number, import->offset, allocation.size});
  const uintptr_t pages = allocation.base - import->offset % kPage;
  const size_t mapped = allocation.reserved;
  allocations.RemoveLocked(allocation);
  arena.UnmapImport(pages, mapped);
  allocations.FreeImportRangeLocked(pages, mapped);
  import->file->Unlock(import->offset);
}

}  // namespace

Allocation* FindImportLocked(uint64_t number, uint64_t offset, size_t size) {
  const auto known = Imported().find({number, offset, size});
  return known != Imported().end() ? Allocations::Get().FindLocked(known->second) : nullptr;
}

orError_t MapImportLocked(const char* function, Import import, size_t size, int device,
                          uintptr_t* base) {
  Allocations& allocations = Allocations::Get();
  const size_t into_page = import.offset % kPage;
  const size_t mapped = RoundUp(into_page + size, kPage);
  const size_t alignment = mapped >= kLargePage ? kLargePage : kPage;
  const uintptr_t pages = allocations.AllocateImportRangeLocked(mapped, alignment);
  if (pages == 0) {
    return Fail(
        orErrorOutOfMemory,
        "%s of %s: the address range for imports (%s) is full; release imported memory that is "
        "no longer needed",
        function, ByteText(size).c_str(), ByteText(arena.imports().size).c_str());
  }
  if (!arena.MapImport(pages, mapped, import.file->get(), import.offset - into_page)) {
    const int error = errno;
    allocations.FreeImportRangeLocked(pages, mapped);
    return Fail(orErrorSystem, "%s of %s: the block cannot be mapped: %s", function,
                ByteText(size).c_str(), std::strerror(error));
  }
  *base = pages + into_page;
  const ImportKey key{import.number, import.offset, size};
  auto kept = std::make_unique<Import>(std::move(import));
  if (!allocations.AddLocked({*base, size, mapped, device, -1, kept.get()})) {
    arena.UnmapImport(pages, mapped);
    allocations.FreeImportRangeLocked(pages, mapped);
    return Fail(orErrorSystem, "%s: out of host memory for the allocation table", function);
  }
  (void)kept.release();  // now owned by the allocation; see CloseImportLocked
  Imported().emplace(key, *base);
  return orSuccess;
}

void ReleaseImportLocked(Allocation* allocation) {
  if (--allocation->import->opens == 0) {
    CloseImportLocked(Allocation(*allocation));
  }
}

void CloseImports(int device) {
  Allocations& allocations = Allocations::Get();
  std::lock_guard lock(allocations.mutex());
  for (const Allocation& import : allocations.ImportsLocked(device)) {
    CloseImportLocked(import);
  }
}

}  // namespace openreg::device
