// SPDX-License-Identifier: BSD-3-Clause
//
// Runs memcheck's functions as kernels. This is possible because a kernel of this device is a host
// function.
#include "runtime/allocator/memcheck.h"
#include "runtime/device/launch.h"

namespace openreg {
namespace {

// The largest memory for which the kernel may run on the launching thread.
constexpr size_t kInlineBytes = size_t{64} << 10;

orError_t launch(orStream_t stream, allocator::MemoryFunction function, char* memory, size_t bytes,
                 uint64_t argument) {
  const orLaunchAttributes attributes{"memcheck",
                                      bytes <= kInlineBytes ? uint32_t{orLaunchInline} : 0U, 0};
  return Launch(stream, attributes, function, memory, bytes, argument);
}

[[maybe_unused]] const bool registered = (allocator::set_memory_function_launcher(&launch), true);

}  // namespace
}  // namespace openreg
