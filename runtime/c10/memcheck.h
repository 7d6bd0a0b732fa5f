// SPDX-License-Identifier: BSD-3-Clause
//
// Memcheck: wrong writes to device memory, and memory that is not given back, with the call stacks
// of their blocks (OPENREG_MEMCHECK=1, torch.openreg.memcheck).
//
// Between torch and allocator::Memcheck, of which each device has one for ever, made with its
// allocator. A process starts with it or never has it: blocks of both kinds are not told apart.
// What was found becomes an error of the call that waits for the device next. Threads: any; with no
// lock held but the interpreter's.
#ifndef RUNTIME_C10_MEMCHECK_H_
#define RUNTIME_C10_MEMCHECK_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/allocator/memcheck.h"
#include "runtime/c10/call_stack.h"
#include "runtime/c10/memory_watch.h"

namespace openreg {

inline bool checks_memory() noexcept { return (memory_watch() & kWatchBounds) != 0; }

// For the allocator of `device`, which is about to be made; null where memory is not checked.
allocator::Memcheck* make_memcheck(c10::DeviceIndex device);
// Null before that.
allocator::Memcheck* memcheck_of(c10::DeviceIndex device) noexcept;

// When the host is about to wait, queues looking at all memory of a device, or of a stream of it.
void check_memory(c10::DeviceIndex device);
void check_memory(orStream_t stream);
// When it has waited: throws c10::Error if something was found.
void raise_memory_faults();

// Blocks that the program holds and that were allocated at one place.
struct HeldMemory {
  c10::DeviceIndex device;
  size_t blocks;
  size_t bytes;
  std::string stack;  // of the allocation, as Python prints it
};
// The largest first. Empty where memory is not checked.
OPENREG_API std::vector<HeldMemory> held_memory();

// The two last acts of a process whose memory is checked, on stderr. When the interpreter is about
// to end: faults that nobody was told of. When it has ended, and with it all that Python held: what
// is still there, if the first was called, but for the blocks at `reachable`: the program can not
// help that the interpreter leaves them.
OPENREG_API void report_memory_faults_at_exit(const std::vector<uintptr_t>& reachable) noexcept;
void report_leaks_at_exit() noexcept;

}  // namespace openreg

#endif  // RUNTIME_C10_MEMCHECK_H_
