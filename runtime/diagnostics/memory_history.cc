// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/memory_history.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/c10/device.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/diagnostics/watcher.h"

namespace openreg {
namespace {

using allocator::CachingAllocator;
using allocator::ContextLevel;
using allocator::History;

struct Histories {
  std::mutex starting;  // guards starts, stops and new allocators
  bool on = false;      // guarded by `starting`
  std::atomic<ContextLevel> contexts{ContextLevel::kNone};
  std::atomic<StackKind> stacks{StackKind::kPython};
  std::array<History, OPENREG_MAX_DEVICES> of;
};

// Returns the histories of all devices. They are never destroyed, because tensors in static storage
// may be freed very late.
Histories& histories() {
  static auto* const instance = std::make_unique<Histories>().release();
  return *instance;
}

template <class Function>
void for_each_core(Function&& function) {
  for (c10::DeviceIndex device = 0; device < OPENREG_MAX_DEVICES; ++device) {
    if (CachingAllocator* const core = caching_allocator_if_any(device); core != nullptr) {
      function(*core, histories().of[static_cast<size_t>(device)]);
    }
  }
}

}  // namespace

void start_memory_history(const MemoryHistorySettings& settings) {
  Histories& state = histories();
  const std::lock_guard<std::mutex> lock(state.starting);
  state.on = true;
  state.contexts = settings.history.contexts;
  state.stacks = settings.stacks;
  for (History& history : state.of) {
    history.start(settings.history, settings.clear);
  }
  memory_watchers.set(kMemoryHistory, true);
  for_each_core([](CachingAllocator& core, History& history) { core.set_observer(&history); });
}

void stop_memory_history() {
  Histories& state = histories();
  const std::lock_guard<std::mutex> lock(state.starting);
  state.on = false;
  state.contexts = ContextLevel::kNone;
  memory_watchers.set(kMemoryHistory, false);
  for_each_core([](CachingAllocator& core, History&) { core.set_observer(nullptr); });
  for (History& history : state.of) {
    history.stop();
  }
}

std::vector<MemorySnapshot> memory_snapshot() {
  const allocator::ContextScope scope(
      history_contexts() >= ContextLevel::kAlloc ? capture_call_stack(history_stacks()) : nullptr);
  std::vector<MemorySnapshot> snapshots(static_cast<size_t>(device_count()));
  for (size_t device = 0; device < snapshots.size(); ++device) {
    History& history = histories().of[device];
    if (CachingAllocator* const core =
            caching_allocator_if_any(static_cast<c10::DeviceIndex>(device));
        core != nullptr) {
      snapshots[device].segments = core->segments();
    }
    history.observe({.action = allocator::Action::kSnapshot});
    snapshots[device].history = history.content();
  }
  return snapshots;
}

CallStack stack_of(const allocator::Context& context) {
  return std::static_pointer_cast<torch::CapturedTraceback>(context);
}

ContextLevel history_contexts() noexcept {
  return histories().contexts.load(std::memory_order_relaxed);
}

StackKind history_stacks() noexcept { return histories().stacks.load(std::memory_order_relaxed); }

void observe_if_on(c10::DeviceIndex device, CachingAllocator* core) {
  Histories& state = histories();
  const std::lock_guard<std::mutex> lock(state.starting);
  if (state.on) {
    core->set_observer(&state.of[static_cast<size_t>(device)]);
  }
}

}  // namespace openreg
