// SPDX-License-Identifier: BSD-3-Clause
//
// exports.h - the handles of memory that this process has given out and that may not be imported
// yet.
//
// By the address of the first byte. Each has a slot of the shared page (shared_page.h): until an
// importer takes the serial number out of the slot, the slot says that the bytes are exported;
// afterwards the importer's lock does (imported_file.h).
//
// All state is under the lock of Allocations.
#ifndef RUNTIME_DEVICE_EXPORTS_H_
#define RUNTIME_DEVICE_EXPORTS_H_

#include <cstddef>
#include <cstdint>

namespace openreg::device {

void AddExport(uintptr_t address, size_t size, uint64_t serial);

// Drops the exports that start in [first, last) and were imported; whether any is left that reaches
// into [from, last).
bool SweepExports(uintptr_t first, uintptr_t from, uintptr_t last);

// Makes the handles of an allocation unusable that were not imported.
void RetractExports(uintptr_t base, size_t size);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_EXPORTS_H_
