// SPDX-License-Identifier: BSD-3-Clause
//
// Memory history: what the allocators of all devices did, with the call stacks it came from, and
// what they hold (torch.openreg.memory._record_memory_history, _snapshot).
//
// Between torch and allocator::History, of which each device has one for ever. While it is on, the
// device allocator captures a stack for each allocation and, if wanted, each free; with no lock
// held. Threads: any.
#ifndef RUNTIME_C10_MEMORY_HISTORY_H_
#define RUNTIME_C10_MEMORY_HISTORY_H_

#include <c10/core/Device.h>

#include <vector>

#include "runtime/allocator/history.h"
#include "runtime/allocator/segment_description.h"
#include "runtime/c10/call_stack.h"
#include "runtime/c10/memory_watch.h"

namespace openreg {

namespace allocator {
class CachingAllocator;
}

struct MemoryHistorySettings {
  allocator::History::Settings history;
  StackKind stacks = StackKind::kPython;
  bool clear = false;  // forget what was recorded before
};

// Of all devices. What was allocated before is not known. stop forgets everything.
OPENREG_API void start_memory_history(const MemoryHistorySettings& settings);
OPENREG_API void stop_memory_history();

// What the allocator of a device holds, and its history.
struct MemorySnapshot {
  std::vector<allocator::SegmentDescription> segments;
  allocator::History::Content history;
};
// Of every device, by index; leaves an event in the history.
OPENREG_API std::vector<MemorySnapshot> memory_snapshot();

// The stack of a context in a history.
OPENREG_API CallStack stack_of(const allocator::Context& context);

// Whose contexts are wanted, and with which frames.
allocator::ContextLevel history_contexts() noexcept;
StackKind history_stacks() noexcept;

// For the allocator of `device`, right after it was made.
void record_if_on(c10::DeviceIndex device, allocator::CachingAllocator* core);

}  // namespace openreg

#endif  // RUNTIME_C10_MEMORY_HISTORY_H_
