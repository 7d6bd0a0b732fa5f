// SPDX-License-Identifier: BSD-3-Clause
//
// The hooks that c10 calls (runtime/c10/diagnostic_hooks.h). Each hook forwards the event to the
// diagnostics that are on. The hooks are registered when the library is loaded.
#include <variant>

#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/initialization.h"
#include "runtime/diagnostics/call_stack.h"
#include "runtime/diagnostics/environment.h"
#include "runtime/diagnostics/implicit_wait.h"
#include "runtime/diagnostics/memcheck.h"
#include "runtime/diagnostics/memory_history.h"
#include "runtime/diagnostics/stream_sanitizer.h"
#include "runtime/diagnostics/warning.h"
#include "runtime/diagnostics/watcher.h"

namespace openreg {
namespace {

using allocator::Block;
using allocator::Memcheck;

Memcheck* memcheck_of_block(const Block* block) {
  return memcheck_of(static_cast<c10::DeviceIndex>(block->device));
}

// Returns the block's address in the program.
const void* address_of(const Block* block) {
  Memcheck* const memcheck = memcheck_of_block(block);
  return memcheck != nullptr ? memcheck->address_of(block) : block->pointer;
}

// Captures a stack if a diagnostic needs it. Captures nothing on a worker thread of the device,
// which must not wait for the interpreter.
allocator::Context context(allocator::ContextLevel level) {
  const bool wanted = checks_memory() || history_contexts() >= level;
  return wanted && orInKernel() == 0 ? capture_call_stack(history_stacks()) : nullptr;
}

void on_free(const Block* block) {
  if (sanitizes_streams()) {
    sanitize_free(address_of(block));
  }
  if (Memcheck* const memcheck = memcheck_of_block(block); memcheck != nullptr) {
    memcheck->free(block);
  }
}

void* on_allocate(const Block* block) {
  Memcheck* const memcheck = memcheck_of_block(block);
  void* const memory = memcheck != nullptr ? memcheck->allocate(block) : block->pointer;
  if (sanitizes_streams()) {
    try {
      sanitize_allocation(memory, block->requested, block->stream);
    } catch (...) {
      on_free(block);
      throw;
    }
  }
  return memory;
}

void on_record_stream(const Block* block, orStream_t stream) {
  if (sanitizes_streams()) {
    sanitize_guard(address_of(block), stream);
  }
  if (Memcheck* const memcheck = memcheck_of_block(block); memcheck != nullptr) {
    memcheck->record_stream(block, stream);
  }
}

allocator::Source* source(c10::DeviceIndex device, allocator::Source* memory) {
  Memcheck* const memcheck = make_memcheck(device);
  return memcheck != nullptr ? memcheck->ledger() : memory;
}

bool find_block(c10::DeviceIndex device, const void* pointer,
                allocator::CachingAllocator::Description* block) {
  const Memcheck* const memcheck = memcheck_of(device);
  return memcheck != nullptr && memcheck->describe(pointer, block);
}

void on_event_record(orEvent_t event, orStream_t stream) {
  if (sanitizes_streams()) {
    sanitize_record(event, stream);
  }
}

void on_event_destroy(orEvent_t event) {
  if (sanitizes_streams()) {
    sanitize_destroy(event);
  }
}

void on_stream_wait(orStream_t stream, orEvent_t event) {
  if (sanitizes_streams()) {
    sanitize_wait(stream, event);
  }
}

void on_done(const Awaited& awaited) {
  if (sanitizes_streams()) {
    std::visit([](auto done) { sanitize_host_wait(done); }, awaited);
  }
}

void before_wait(const Awaited& awaited) {
  if (!checks_memory()) {
    return;
  }
  if (const auto* const device = std::get_if<c10::DeviceIndex>(&awaited)) {
    check_memory(*device);
  } else if (const auto* const stream = std::get_if<orStream_t>(&awaited)) {
    check_memory(*stream);
  }
}

void after_wait(const Awaited& awaited, orError_t error) {
  deliver_warnings();
  on_done(awaited);
  if (error == orSuccess && checks_memory()) {
    raise_memory_faults();
  }
}

constexpr DiagnosticHooks kHooks{
    .context = &context,
    .on_allocate = &on_allocate,
    .on_record_stream = &on_record_stream,
    .on_free = &on_free,
    .source = &source,
    .on_allocator = &observe_if_on,
    .find_block = &find_block,
    .on_event_record = &on_event_record,
    .on_stream_wait = &on_stream_wait,
    .on_event_destroy = &on_event_destroy,
    .before_wait = &before_wait,
    .after_wait = &after_wait,
    .on_done = &on_done,
    .on_capture_begin = &count_capture,
    .on_capture_end = &discount_capture,
};

[[maybe_unused]] const bool registered = [] {
  set_diagnostic_hooks(&kHooks);
  at_initialization(&read_environment);
  return true;
}();

}  // namespace
}  // namespace openreg
