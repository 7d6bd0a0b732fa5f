// SPDX-License-Identifier: BSD-3-Clause
//
// Enables the driver's fault report to describe the block that contains an address.
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/error.h"
#include "runtime/c10/initialization.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg {
namespace {

// Implements the driver's resolver. Called in a signal handler.
int resolve(const void* pointer, orMemoryRange* range) {
  BlockRange found;
  if (!find_block(pointer, &found)) {
    return 0;
  }
  *range = {found.base, found.size, found.in_use ? 1 : 0};
  return 1;
}

[[maybe_unused]] const bool registered =
    (at_initialization([] { OPENREG_CHECK(orSetMemoryResolver(&resolve)); }), true);

}  // namespace
}  // namespace openreg
