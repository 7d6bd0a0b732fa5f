// SPDX-License-Identifier: BSD-3-Clause
//
// exports.h - memory handles that this process has exported and that may not have been imported
// yet.
//
// Exports are keyed by the address of their first byte. Each export has a slot on the shared page
// (shared_page.h). The slot marks the bytes as exported until an importer removes the serial number
// from it. From then on, the importer's file lock marks the bytes (imported_file.h).
//
// The lock of Allocations guards all state.
#ifndef RUNTIME_DEVICE_EXPORTS_H_
#define RUNTIME_DEVICE_EXPORTS_H_

#include <cstddef>
#include <cstdint>

namespace openreg::device {

// Adds an export. `serial` is the serial number of its slot.
void AddExport(uintptr_t address, size_t size, uint64_t serial);

// Drops the exports that start in [first, last) and have been imported. Returns whether any of the
// remaining exports overlaps [from, last).
bool SweepExports(uintptr_t first, uintptr_t from, uintptr_t last);

// Invalidates all handles of an allocation that have not been imported.
void RetractExports(uintptr_t base, size_t size);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EXPORTS_H_
