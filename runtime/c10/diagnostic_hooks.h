// SPDX-License-Identifier: BSD-3-Clause
//
// Diagnostic hooks: what c10 reports to the diagnostics (runtime/diagnostics), and what it asks
// them.
//
// c10 does not depend on the diagnostics: their library registers one table of functions when it is
// loaded. Without it every hook has its default, which changes nothing; a backend may leave the
// diagnostics out.
//
// A path on which speed matters calls a hook only while a diagnostic wants that: each one enters
// itself in memory_watchers or stream_watchers while it is on, and a path where none is entered
// pays one relaxed load. torch's own mechanism (c10::impl::GPUTrace) does not carry enough: its
// callbacks have no sizes, no stream of an allocation, no record_stream and no queries, there is
// one receiver per process, and each call takes the GIL.
//
// Threads: any. A hook runs on the thread that called c10. It holds no lock of c10, except where a
// hook says so, and may take the GIL if that thread may.
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

// The diagnostics that want to be called on some path, one bit each; runtime/diagnostics assigns
// the bits.
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

OPENREG_API extern Watchers memory_watchers;  // allocations and frees
OPENREG_API extern Watchers stream_watchers;  // events, and waits of the host

// What the host waits for: all streams of a device, one stream, or an event.
using Awaited = std::variant<c10::DeviceIndex, orStream_t, orEvent_t>;

struct DiagnosticHooks {
  // Memory, while a memory watcher is on.

  // Where the program is, for a block that is allocated (kState) or freed (kAll); null if nobody
  // wants to know.
  allocator::Context (*context)(allocator::ContextLevel level) =
      [](allocator::ContextLevel /*level*/) { return allocator::Context(); };
  // A block was allocated; returns the address that the program gets. If it throws, the block is
  // freed and on_free() is not called.
  void* (*on_allocate)(const allocator::Block* block) = [](const allocator::Block* block) {
    return block->pointer;
  };
  void (*on_record_stream)(const allocator::Block* block, orStream_t stream) =
      [](const allocator::Block* /*block*/, orStream_t /*stream*/) {};
  // Before the block goes back to the allocator.
  void (*on_free)(const allocator::Block* block) = [](const allocator::Block* /*block*/) {};

  // Memory, always.

  // The allocator of `device` is about to be made: returns the source of its segments, which lives
  // forever, or `memory`, that of the device itself. This hook and the next one are called with the
  // lock held under which allocators are made.
  allocator::Source* (*source)(c10::DeviceIndex device, allocator::Source* memory) =
      [](c10::DeviceIndex /*device*/, allocator::Source* memory) { return memory; };
  void (*on_allocator)(c10::DeviceIndex device, allocator::CachingAllocator* allocator) =
      [](c10::DeviceIndex /*device*/, allocator::CachingAllocator* /*allocator*/) {};
  // The block that a pointer lies in, if the program got another address than that of a block of
  // the allocator (on_allocate). Async-signal-safe.
  bool (*find_block)(c10::DeviceIndex device, const void* pointer,
                     allocator::CachingAllocator::Description* block) =
      [](c10::DeviceIndex /*device*/, const void* /*pointer*/,
         allocator::CachingAllocator::Description* /*block*/) { return false; };

  // Streams and events, while a stream watcher is on, after the driver has done it.

  void (*on_event_record)(orEvent_t event, orStream_t stream) = [](orEvent_t /*event*/,
                                                                   orStream_t /*stream*/) {};
  void (*on_stream_wait)(orStream_t stream, orEvent_t event) = [](orStream_t /*stream*/,
                                                                  orEvent_t /*event*/) {};
  // Before the event is destroyed. Must not throw.
  void (*on_event_destroy)(orEvent_t event) = [](orEvent_t /*event*/) {};
  // Around a wait of the host. `error` is that of the wait, which c10 throws afterwards; either
  // hook may throw instead.
  void (*before_wait)(const Awaited& awaited) = [](const Awaited& /*awaited*/) {};
  void (*after_wait)(const Awaited& awaited, orError_t error) = [](const Awaited& /*awaited*/,
                                                                   orError_t /*error*/) {};
  // A query has found that nothing is left to wait for.
  void (*on_done)(const Awaited& awaited) = [](const Awaited& /*awaited*/) {};

  // Graphs (graph.h), always. Must not throw.

  void (*on_capture_begin)() = [] {};
  void (*on_capture_end)() = [] {};
};

// Registers the table, which must live until the end of the process. One per process; a static
// initializer calls this.
OPENREG_API void set_diagnostic_hooks(const DiagnosticHooks* hooks) noexcept;
const DiagnosticHooks& diagnostic_hooks() noexcept;

// Has `wait`, a call of the driver, make the host wait for `awaited`, reports that, and throws the
// error of the call.
template <class Wait>
void wait_for(const Awaited& awaited, const Wait& wait) {
  if (C10_UNLIKELY(stream_watchers.any())) {
    diagnostic_hooks().before_wait(awaited);
  }
  const orError_t error = wait();
  // Read anew: a kernel that the wait was for may have entered a watcher (its warning).
  if (C10_UNLIKELY(stream_watchers.any())) {
    diagnostic_hooks().after_wait(awaited, error);
  }
  OPENREG_CHECK(error);
}

}  // namespace openreg

#endif  // RUNTIME_C10_DIAGNOSTIC_HOOKS_H_
