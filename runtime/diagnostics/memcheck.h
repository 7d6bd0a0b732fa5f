// SPDX-License-Identifier: BSD-3-Clause
//
// Memcheck: finds out-of-bounds writes to device memory, and memory that is never freed, and
// reports the call stacks of the blocks (OPENREG_MEMCHECK=1, torch.openreg.memcheck).
//
// It connects torch with allocator::Memcheck. Each device has one allocator::Memcheck, which is
// created together with the device's allocator and never destroyed. Memcheck is either on from the
// first use of the device or never on, because the allocator cannot distinguish blocks with red
// zones from other blocks. The next call that waits for the device throws an exception with the
// findings. Any thread may call these functions if it holds no lock except the GIL.
#ifndef RUNTIME_DIAGNOSTICS_MEMCHECK_H_
#define RUNTIME_DIAGNOSTICS_MEMCHECK_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/allocator/memcheck.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/diagnostics/watcher.h"

namespace openreg {

inline bool checks_memory() noexcept { return memory_watchers.contains(kMemcheck); }

// Creates the memcheck of `device`. Must be called before the device's allocator is created.
// Returns null if memory is not checked.
allocator::Memcheck* make_memcheck(c10::DeviceIndex device);
// Returns the memcheck of `device`, or null if make_memcheck() has not created it yet.
// Async-signal-safe.
allocator::Memcheck* memcheck_of(c10::DeviceIndex device) noexcept;

// Queue a check of all memory on a device, or on one of its streams. Called before a host wait.
void check_memory(c10::DeviceIndex device);
void check_memory(orStream_t stream);
// Throws c10::Error if a check found a fault. Called after a host wait.
void raise_memory_faults();

// The blocks that the program allocated at one call stack and has not freed.
struct HeldMemory {
  c10::DeviceIndex device;
  size_t blocks;
  size_t bytes;
  std::string stack;  // call stack of the allocation, as Python prints it
};
// Returns the held memory, largest amount first. Returns an empty list if memory is not checked.
OPENREG_API std::vector<HeldMemory> held_memory();

// Write two reports to stderr at process exit if memory is checked.
//
// report_memory_faults_at_exit() must be called when the interpreter is about to exit. It reports
// faults that no call has thrown. report_leaks_at_exit() must be called after the interpreter has
// exited and all Python objects are gone, but before shut_down() (runtime/c10/shutdown.h). It
// reports blocks that are still held, provided that the first report was made. It excludes the
// blocks at `reachable`: the interpreter never frees these blocks, which is not a fault of the
// program.
OPENREG_API void report_memory_faults_at_exit(const std::vector<uintptr_t>& reachable) noexcept;
OPENREG_API void report_leaks_at_exit() noexcept;

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_MEMCHECK_H_
