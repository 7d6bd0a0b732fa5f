// SPDX-License-Identifier: BSD-3-Clause
//
// Memcheck: finds wrong writes to device memory and memory that is never freed, and shows the call
// stacks of the blocks (OPENREG_MEMCHECK=1, torch.openreg.memcheck).
//
// Connects torch with allocator::Memcheck, one per device, made with its allocator and never
// destroyed. It is on from the first use of the device or never, because nothing distinguishes
// blocks with red zones from others. The next call that waits for the device throws what was found.
// Threads: any; the caller holds no lock except the GIL.
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

// For the allocator of `device`, which is about to be made; null if memory is not checked.
allocator::Memcheck* make_memcheck(c10::DeviceIndex device);
// Null before that. Async-signal-safe.
allocator::Memcheck* memcheck_of(c10::DeviceIndex device) noexcept;

// Before the host waits: queues a check of all memory of a device, or of one of its streams.
void check_memory(c10::DeviceIndex device);
void check_memory(orStream_t stream);
// After the wait: throws c10::Error if a check has found something.
void raise_memory_faults();

// The blocks that the program holds from one place in it.
struct HeldMemory {
  c10::DeviceIndex device;
  size_t blocks;
  size_t bytes;
  std::string stack;  // of the allocation, as Python prints it
};
// The largest first. Empty if memory is not checked.
OPENREG_API std::vector<HeldMemory> held_memory();

// Two reports on stderr at the end of a process whose memory is checked. The first, when the
// interpreter is about to end: faults that no call has thrown. The second, when the interpreter has
// ended and all Python objects are gone: blocks that are still held, if the first report was made,
// except those at `reachable`, which the interpreter leaves through no fault of the program. It
// must come before shut_down() (runtime/c10/shutdown.h).
OPENREG_API void report_memory_faults_at_exit(const std::vector<uintptr_t>& reachable) noexcept;
OPENREG_API void report_leaks_at_exit() noexcept;

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_MEMCHECK_H_
