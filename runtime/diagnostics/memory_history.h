// SPDX-License-Identifier: BSD-3-Clause
//
// Memory history: the events and contents of all devices' allocators, with the call stacks of the
// requests (torch.openreg.memory._record_memory_history, _snapshot).
//
// It connects torch with allocator::History. There is one History per device, which exists for the
// lifetime of the process. While the history is on, each allocation and, on request, each free
// first captures a stack; no lock is held during the capture. Any thread may call these functions.
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
  bool clear = false;  // discard the earlier history
};

// Start and stop recording on all devices. The history does not contain allocations made before the
// start. Stopping discards the history.
OPENREG_API void start_memory_history(const MemoryHistorySettings& settings);
OPENREG_API void stop_memory_history();

// The contents of a device's allocator, and its history.
struct MemorySnapshot {
  std::vector<allocator::SegmentDescription> segments;
  allocator::History::Content history;
};
// Returns the snapshots of all devices, indexed by device. Adds an event to the history.
OPENREG_API std::vector<MemorySnapshot> memory_snapshot();

// Returns the stack that a context of the history contains.
OPENREG_API CallStack stack_of(const allocator::Context& context);

// Return the operations that need a context, and the kind of frames in the context.
allocator::ContextLevel history_contexts() noexcept;
StackKind history_stacks() noexcept;

// If the history is on, observes the allocator of `device`. Called after the allocator has been
// created.
void observe_if_on(c10::DeviceIndex device, allocator::CachingAllocator* core);

}  // namespace openreg

#endif  // RUNTIME_DIAGNOSTICS_MEMORY_HISTORY_H_
