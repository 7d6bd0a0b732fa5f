// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/exports.h"

#include <map>
#include <memory>

#include "runtime/device/shared_page.h"

namespace openreg::device {
namespace {

struct Export {
  size_t size;
  uint64_t serial;
};

std::multimap<uintptr_t, Export>& Exports() {
  // Never destroyed, because blocks may be freed until the process ends.
  static auto& exports = *new std::multimap<uintptr_t, Export>;
  return exports;
}

bool IsImported(uint64_t serial) {
  std::shared_ptr<MappedPage> own;
  MarkWord word;
  return MappedPage::Own("orIpcIsExported", &own) == orSuccess && !own->Read(serial, &word);
}

// Drops the exports that start in [first, last) and for which `ends` returns true. Returns whether
// any of the remaining exports overlaps [from, last).
template <class Ends>
bool DropExports(uintptr_t first, uintptr_t from, uintptr_t last, Ends ends) {
  auto& exports = Exports();
  bool left = false;
  for (auto entry = exports.lower_bound(first); entry != exports.end() && entry->first < last;) {
    if (ends(entry->second.serial)) {
      FreeSlot(entry->second.serial);
      entry = exports.erase(entry);
    } else {
      left = left || entry->first + entry->second.size > from;
      ++entry;
    }
  }
  return left;
}

}  // namespace

void AddExport(uintptr_t address, size_t size, uint64_t serial) {
  Exports().emplace(address, Export{size, serial});
}

bool SweepExports(uintptr_t first, uintptr_t from, uintptr_t last) {
  return DropExports(first, from, last, IsImported);
}

void RetractExports(uintptr_t base, size_t size) {
  (void)DropExports(base, base, base + size, [](uint64_t) { return true; });
}

}  // namespace openreg::device
