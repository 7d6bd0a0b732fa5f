// SPDX-License-Identifier: BSD-3-Clause
//
// diagnostic_hooks.h - the hooks through which c10 reports events to the diagnostics
// (runtime/diagnostics) and queries them.
//
// c10 does not depend on the diagnostics: their library registers one table of functions when it is
// loaded. Without this table, every hook has a default that changes nothing. A backend may
// therefore omit the diagnostics.
//
// A performance-critical path calls a hook only while a diagnostic needs it. An active diagnostic
// sets its bit in memory_watchers or stream_watchers. A path without watchers costs one relaxed
// load. torch's own mechanism (c10::impl::GPUTrace) is not sufficient. Its callbacks receive no
// sizes, allocation streams, record_stream calls or queries. In addition, it has only one receiver
// per process, and each call acquires the GIL.
//
// Any thread may call a hook. The hook runs on the thread that called c10. Unless stated otherwise,
// it is called while no c10 lock is held, and it may acquire the GIL if that thread may.
#ifndef RUNTIME_C10_DIAGNOSTIC_HOOKS_H_
#define RUNTIME_C10_DIAGNOSTIC_HOOKS_H_

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>
#include <variant>

#include "runtime/allocator/block.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/context.h"
#include "runtime/allocator/history.h"
#include "runtime/allocator/source.h"
#include "runtime/c10/error.h"
#include "runtime/device/openreg.h"

namespace openreg {

// The active diagnostics that watch one kind of code path, one bit each. runtime/diagnostics
// assigns the bits.
class Watchers {
 public:
  uint32_t bits() const noexcept { return bits_.load(std::memory_order_relaxed); }
  bool any() const noexcept { return bits() != 0; }
  bool contains(uint32_t watcher) const noexcept { return (bits() & watcher) != 0; }
  void set(uint32_t watcher, bool on) noexcept {
    if (on) {
      bits_.fetch_or(watcher, std::memory_order_relaxed);
    } else {
      bits_.fetch_and(~watcher, std::memory_order_relaxed);
    }
  }

 private:
  std::atomic<uint32_t> bits_{0};
};

OPENREG_API extern Watchers memory_watchers;  // diagnostics that watch allocations and frees
OPENREG_API extern Watchers stream_watchers;  // diagnostics that watch events and host waits

// The object of a host wait: all streams of a device, one stream, or an event.
using Awaited = std::variant<c10::DeviceIndex, orStream_t, orEvent_t>;

struct DiagnosticHooks {
  // Memory hooks, called while a memory watcher is on.

  // Returns the program's position (call stack) for a block that is being allocated (kState) or
  // freed (kAll). Returns null if no diagnostic needs it.
  allocator::Context (*context)(allocator::ContextLevel level) =
      [](allocator::ContextLevel /*level*/) { return allocator::Context(); };
  // Called after a block has been allocated. Returns the address to pass to the program. If it
  // throws, the block is freed without a call to on_free().
  void* (*on_allocate)(const allocator::Block* block) = [](const allocator::Block* block) {
    return block->pointer;
  };
  void (*on_record_stream)(const allocator::Block* block, orStream_t stream) =
      [](const allocator::Block* /*block*/, orStream_t /*stream*/) {};
  // Called before the block returns to the allocator.
  void (*on_free)(const allocator::Block* block) = [](const allocator::Block* /*block*/) {};

  // Memory hooks, always called.

  // Called before the allocator for `device` is created. Returns the source of its segments:
  // `memory`, which is the device's own source, or a source that is never destroyed. This hook and
  // on_allocator() are called while the lock that protects the creation of allocators is held.
  allocator::Source* (*source)(c10::DeviceIndex device, allocator::Source* memory) =
      [](c10::DeviceIndex /*device*/, allocator::Source* memory) { return memory; };
  void (*on_allocator)(c10::DeviceIndex device, allocator::CachingAllocator* allocator) =
      [](c10::DeviceIndex /*device*/, allocator::CachingAllocator* /*allocator*/) {};
  // Finds the block that contains `pointer`, if on_allocate() returned an address other than the
  // block's own. Async-signal-safe.
  bool (*find_block)(c10::DeviceIndex device, const void* pointer,
                     allocator::CachingAllocator::Description* block) =
      [](c10::DeviceIndex /*device*/, const void* /*pointer*/,
         allocator::CachingAllocator::Description* /*block*/) { return false; };

  // Stream and event hooks, called after the driver call while a stream watcher is on.

  void (*on_event_record)(orEvent_t event, orStream_t stream) = [](orEvent_t /*event*/,
                                                                   orStream_t /*stream*/) {};
  void (*on_stream_wait)(orStream_t stream, orEvent_t event) = [](orStream_t /*stream*/,
                                                                  orEvent_t /*event*/) {};
  // Called before the event is destroyed. Must not throw.
  void (*on_event_destroy)(orEvent_t event) = [](orEvent_t /*event*/) {};
  // Called before and after a host wait. `error` is the result of the wait; c10 throws it
  // afterwards. Either hook may throw a different exception instead.
  void (*before_wait)(const Awaited& awaited) = [](const Awaited& /*awaited*/) {};
  void (*after_wait)(const Awaited& awaited, orError_t error) = [](const Awaited& /*awaited*/,
                                                                   orError_t /*error*/) {};
  // Called after a query that found no pending work.
  void (*on_done)(const Awaited& awaited) = [](const Awaited& /*awaited*/) {};

  // Graph hooks (graph.h), always called. Must not throw.

  void (*on_capture_begin)() = [] {};
  void (*on_capture_end)() = [] {};
};

// Registers the table, which must exist until the process exits. There is one table per process; a
// static initializer registers it.
OPENREG_API void set_diagnostic_hooks(const DiagnosticHooks* hooks) noexcept;
const DiagnosticHooks& diagnostic_hooks() noexcept;

// Calls `wait`, a driver call that makes the host wait for `awaited`. Reports the wait to the
// hooks, and throws if the call returned an error.
template <class Wait>
void wait_for(const Awaited& awaited, const Wait& wait) {
  if (C10_UNLIKELY(stream_watchers.any())) {
    diagnostic_hooks().before_wait(awaited);
  }
  const orError_t error = wait();
  // Load the watchers again, because a kernel that has just finished may have enabled one.
  if (C10_UNLIKELY(stream_watchers.any())) {
    diagnostic_hooks().after_wait(awaited, error);
  }
  OPENREG_CHECK(error);
}

}  // namespace openreg

#endif  // RUNTIME_C10_DIAGNOSTIC_HOOKS_H_
