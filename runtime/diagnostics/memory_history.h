// SPDX-License-Identifier: BSD-3-Clause
//
// Memory history: the events and contents of all devices' allocators, with the call stacks of the
// requests (torch.openreg.memory._record_memory_history, _snapshot).
//
// It connects torch with allocator::History, of which there is one per device as long as the
// process lives. While it is on, each allocation and, on request, each free first captures a stack,
// while it holds no lock. Any thread may call these functions.
#ifndef RUNTIME_DIAGNOSTICS_MEMORY_HISTORY_H_
#define RUNTIME_DIAGNOSTICS_MEMORY_HISTORY_H_

#include <c10/core/Device.h>

#include <vector>

#include "runtime/allocator/history.h"
#include "runtime/allocator/segment_description.h"
#include "runtime/diagnostics/call_stack.h"

namespace openreg {

namespace allocator {
class CachingAllocator;
}

struct MemoryHistorySettings {
  allocator::History::Settings history;
  StackKind stacks = StackKind::kPython;
  bool clear = false;  // discard what was recorded earlier
};

// Start and stop recording on all devices. Earlier allocations are unknown to the history. Stopping
// discards it.
OPENREG_API void start_memory_history(const MemoryHistorySettings& settings);
OPENREG_API void stop_memory_history();

// What a device's allocator holds, and its history.
struct MemorySnapshot {
  std::vector<allocator::SegmentDescription> segments;
  allocator::History::Content history;
};
// Returns the snapshots of all devices, indexed by device, and adds an event to the history.
OPENREG_API std::vector<MemorySnapshot> memory_snapshot();

// Returns the stack that a context in a history stores.
OPENREG_API CallStack stack_of(const allocator::Context& context);

// Return which operations need a context, and which frames it has.
allocator::ContextLevel history_contexts() noexcept;
StackKind history_stacks() noexcept;

// Observes the allocator of `device` if the history is on. Called after the allocator has been
// created.
void observe_if_on(c10::DeviceIndex device, allocator::CachingAllocator* core);

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_MEMORY_HISTORY_H_
