// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/device_allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/device_source.h"
#include "runtime/allocator/device_timeline.h"
#include "runtime/allocator/limited_source.h"
#include "runtime/c10/allocator_settings.h"
#include "runtime/c10/diagnostic_hooks.h"
#include "runtime/c10/error.h"
#include "runtime/c10/memory_profiling.h"
#include "runtime/c10/sharing.h"
#include "runtime/c10/stream.h"

namespace openreg {

constinit std::atomic<bool (*)()> profiler_was_used{[] { return true; }};

namespace {

namespace stats = c10::CachingDeviceAllocator;
using allocator::Block;
using allocator::CachingAllocator;

// Throws torch's exception for an exception of the allocator core.
[[noreturn]] void throw_allocator_error(const allocator::Error& error) {
  TORCH_CHECK_WITH(OutOfMemoryError, error.code() != orErrorOutOfMemory, error.what());
  if (error.code() == orErrorForked) {
    throw_error(orErrorForked);
  }
  TORCH_CHECK(false, error.what());
}

template <class Function>
void translate_errors(Function&& function) {
  try {
    function();
  } catch (const allocator::Error& error) {
    throw_allocator_error(error);
  }
}

// The parts of one device's allocator. Never destroyed, because tensors in static storage may exist
// longer than other static objects.
struct DeviceMemory {
  explicit DeviceMemory(c10::DeviceIndex device)
      : whole(device),
        base(diagnostic_hooks().source(device, &whole)),
        source(base),
        core(device, &source, &timeline) {}
  allocator::DeviceSource whole;
  allocator::Source* const base;    // `whole`, unless a diagnostic replaces it
  allocator::LimitedSource source;  // limits `base` to the fraction that this process may use
  allocator::DeviceTimeline timeline;
  CachingAllocator core;
  std::atomic<double> fraction{1};

  void set_fraction(double part) {
    const double total = static_cast<double>(whole.room().total);
    source.set_limit(part < 1 ? static_cast<size_t>(part * total)
                              : allocator::LimitedSource::kNoLimit);
    fraction.store(part, std::memory_order_relaxed);
  }

  void apply(const AllocatorSettings& settings) {
    core.set_settings(settings.core);
    if (settings.memory_fraction.has_value()) {
      set_fraction(*settings.memory_fraction);
    }
  }
};

std::array<std::atomic<DeviceMemory*>, OPENREG_MAX_DEVICES> memories{};
std::mutex making;  // guards insertions into `memories`

DeviceMemory* memory_if_any(c10::DeviceIndex device) {
  return memories[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

CachingAllocator* core_if_any(c10::DeviceIndex device) {
  DeviceMemory* const memory = memory_if_any(device);
  return memory != nullptr ? &memory->core : nullptr;
}

CachingAllocator& make_core(c10::DeviceIndex device) {
  initialize();
  const AllocatorSettings settings = allocator_settings();  // acquires torch's lock
  const std::lock_guard<std::mutex> lock(making);
  auto& memory = memories[static_cast<size_t>(device)];
  if (memory.load(std::memory_order_relaxed) == nullptr) {
    auto made = std::make_unique<DeviceMemory>(device);
    translate_errors([&] { made->apply(settings); });
    memory.store(made.release(), std::memory_order_release);
    diagnostic_hooks().on_allocator(device, core_if_any(device));
  }
  return *core_if_any(device);
}

bool memory_in_use() {
  return std::ranges::any_of(memories, [](const auto& memory) {
    return memory.load(std::memory_order_acquire) != nullptr;
  });
}

void apply_to_all(const AllocatorSettings& settings) {
  const std::lock_guard<std::mutex> lock(making);
  for (const auto& memory : memories) {
    if (DeviceMemory* const made = memory.load(std::memory_order_relaxed)) {
      translate_errors([&] { made->apply(settings); });
    }
  }
}

CachingAllocator& core_of(c10::DeviceIndex device) {
  CachingAllocator* const core = core_if_any(device);
  return C10_LIKELY(core != nullptr) ? *core : make_core(device);
}

size_t current_bytes(const allocator::Stats& stats, allocator::Quantity quantity) {
  return static_cast<size_t>(stats.stat[quantity][allocator::kAggregate].current);
}

// Reports a change of allocated memory to torch's profiler if it records memory
// (profile_memory=True).
void report_to_profiler(CachingAllocator& core, void* pointer, int64_t bytes) {
  if (!profiles_memory()) {
    return;
  }
  const allocator::Stats stats = core.stats();
  c10::reportMemoryUsageToProfiler(pointer, bytes, current_bytes(stats, allocator::kAllocatedBytes),
                                   current_bytes(stats, allocator::kReservedBytes),
                                   c10::Device(kOpenRegType, core.device()));
}

[[gnu::cold, gnu::noinline]] void report_out_of_memory(c10::Device device, size_t bytes) {
  const allocator::Stats stats = core_of(device.index()).stats();
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes),
                                   current_bytes(stats, allocator::kAllocatedBytes),
                                   current_bytes(stats, allocator::kReservedBytes), device);
}

void free_nothing(void* /*context*/) {}

// Allocates a block. If there is no room, releases memory that other processes no longer use and
// tries again.
Block* allocate_block(CachingAllocator& core, size_t bytes, orStream_t stream) {
  try {
    return core.allocate(bytes, stream);
  } catch (const allocator::Error& error) {
    if (error.code() != orErrorOutOfMemory || release_shared() == 0) {
      throw;
    }
  }
  return core.allocate(bytes, stream);
}

// Functions to allocate, free and record streams with calls to the hooks. They are used while a
// diagnostic or torch's profiler watches memory.

[[gnu::cold, gnu::noinline]] c10::DataPtr allocate_watched(c10::Device device, size_t bytes,
                                                           orStream_t stream) {
  CachingAllocator& core = core_of(device.index());
  if (!memory_watchers.any()) {
    Block* const block = allocate_block(core, bytes, stream);
    report_to_profiler(core, block->pointer, static_cast<int64_t>(block->size));
    return {block->pointer, block, &free_block, device};
  }
  const DiagnosticHooks& hooks = diagnostic_hooks();
  const allocator::ContextScope scope(hooks.context(allocator::ContextLevel::kState));
  Block* const block = allocate_block(core, bytes, stream);
  try {
    void* const pointer = hooks.on_allocate(block);
    report_to_profiler(core, block->pointer, static_cast<int64_t>(block->size));
    return {pointer, block, &free_block, device};
  } catch (...) {
    core.free(block);
    throw;
  }
}

[[gnu::cold, gnu::noinline]] void record_stream_watched(const Block* block, orStream_t stream) {
  if (!in_forked_child()) {
    diagnostic_hooks().on_record_stream(block, stream);
  }
}

[[gnu::cold, gnu::noinline]] void free_watched(Block* block) {
  if (in_forked_child()) {
    return;
  }
  CachingAllocator& core = core_of(static_cast<c10::DeviceIndex>(block->device));
  void* const pointer = block->pointer;
  const auto bytes = static_cast<int64_t>(block->size);
  std::optional<allocator::ContextScope> scope;
  if (memory_watchers.any()) {
    const DiagnosticHooks& hooks = diagnostic_hooks();
    scope.emplace(hooks.context(allocator::ContextLevel::kAll));
    hooks.on_free(block);  // called before another thread can allocate the block
  }
  core.free(block);
  report_to_profiler(core, pointer, -bytes);
}

stats::Stat to_torch(const allocator::Stat& from) {
  stats::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

stats::StatArray to_torch(const std::array<allocator::Stat, allocator::kPoolTypes>& from) {
  stats::StatArray to;
  static_assert(allocator::kPoolTypes == std::tuple_size_v<stats::StatArray>);
  for (size_t type = 0; type < allocator::kPoolTypes; ++type) {
    to[type] = to_torch(from[type]);
  }
  return to;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current_device(), bytes); }

  // There is no raw_allocate, because its callers pass only an address to the deleter, and a block
  // cannot be found by its address.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  // Copies data for clone(), on the current stream of the current device.
  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    if (bytes != 0) {
      OPENREG_CHECK(orMemcpyAsync(dst, src, bytes, orMemcpyDeviceToDevice,
                                  current_native_stream(current_device())));
    }
  }

  bool initialized() override { return is_initialized(); }

  void emptyCache(c10::MempoolId_t pool) override {
    const allocator::ContextScope scope(
        memory_watchers.any() ? diagnostic_hooks().context(allocator::ContextLevel::kAll)
                              : nullptr);
    for_each_core([pool](CachingAllocator& core) { core.empty_cache(pool); });
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Block* const block = block_of(data);
    if (block == nullptr) {
      record_shared(data, stream);
      return;  // there is no memory, or the owner of the memory must be notified
    }
    core_of(static_cast<c10::DeviceIndex>(block->device))
        .record_stream(block, native_stream(stream));
    if (C10_UNLIKELY(memory_watchers.any())) {
      record_stream_watched(block, native_stream(stream));
    }
  }

  stats::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    CachingAllocator* const core = core_if_any(resolve_device(device));
    const allocator::Stats from = core != nullptr ? core->stats() : allocator::Stats();
    stats::DeviceStats to;
    to.allocation = to_torch(from.stat[allocator::kAllocation]);
    to.segment = to_torch(from.stat[allocator::kSegment]);
    to.active = to_torch(from.stat[allocator::kActive]);
    to.inactive_split = to_torch(from.stat[allocator::kInactiveSplit]);
    to.allocated_bytes = to_torch(from.stat[allocator::kAllocatedBytes]);
    to.reserved_bytes = to_torch(from.stat[allocator::kReservedBytes]);
    to.active_bytes = to_torch(from.stat[allocator::kActiveBytes]);
    to.inactive_split_bytes = to_torch(from.stat[allocator::kInactiveSplitBytes]);
    to.requested_bytes = to_torch(from.stat[allocator::kRequestedBytes]);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    for (const auto& [id, reserved] : from.private_reserved) {
      to.reserved_bytes_by_private_pools[id] = to_torch(reserved);
    }
    to.max_split_size = static_cast<int64_t>(std::min<size_t>(
        c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size(), INT64_MAX));
    return to;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (CachingAllocator* const core = core_if_any(resolve_device(device))) {
      core->reset_accumulated();
    }
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    if (CachingAllocator* const core = core_if_any(resolve_device(device))) {
      core->reset_peak();
    }
  }

  // Returns the free and the total memory in bytes. Free memory is the memory that the driver can
  // still allocate. It does not include the memory that this allocator caches.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const DeviceMemory* const memory = memory_if_any(resolve_device(device));
    if (memory != nullptr && memory->base != &memory->whole) {
      const allocator::Source::Room room = memory->base->room();
      return {room.free, room.total};
    }
    const DeviceScope scope(resolve_device(device));
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    OPENREG_CHECK(orMemGetInfo(&free_bytes, &total_bytes));
    return {free_bytes, total_bytes};
  }

 private:
  template <class Function>
  static void for_each_core(Function&& function) {
    for (c10::DeviceIndex device = 0; device < OPENREG_MAX_DEVICES; ++device) {
      if (CachingAllocator* const core = core_if_any(device)) {
        translate_errors([&] { function(*core); });
      }
    }
  }
};

DeviceAllocator& the_allocator() {
  static auto* const allocator = std::make_unique<DeviceAllocator>().release();
  return *allocator;
}

const bool registered = [] {
  c10::SetAllocator(kOpenRegType, &the_allocator());
  on_allocator_settings(&memory_in_use, &apply_to_all);
  return true;
}();

}  // namespace

CachingAllocator& caching_allocator(c10::DeviceIndex device) {
  return core_of(resolve_device(device));
}

CachingAllocator* caching_allocator_if_any(c10::DeviceIndex device) noexcept {
  return core_if_any(device);
}

void set_memory_fraction(c10::DeviceIndex device, double fraction) {
  TORCH_CHECK_VALUE(
      fraction >= 0 && fraction <= 1,
      "openreg: the fraction of a device's memory that this process may allocate must "
      "be between 0 and 1, but got ",
      fraction);
  caching_allocator(device);
  translate_errors([&] { memory_if_any(device)->set_fraction(fraction); });
}

double memory_fraction(c10::DeviceIndex device) {
  const DeviceMemory* const memory = memory_if_any(resolve_device(device));
  return memory != nullptr ? memory->fraction.load(std::memory_order_relaxed)
                           : allocator_settings().memory_fraction.value_or(1);
}

void use_pool(c10::DeviceIndex device, c10::MempoolId_t id, PoolTraits traits) {
  translate_errors([&] {
    caching_allocator(device).use_pool(id,
                                       {.last_resort = traits.last_resort, .whole = traits.whole});
  });
}

void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id,
                            std::function<bool(orStream_t)> filter) {
  translate_errors(
      [&] { caching_allocator(device).begin_allocate_to_pool(id, std::move(filter)); });
}

void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  translate_errors([&] { caching_allocator(device).end_allocate_to_pool(id); });
}

void release_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  translate_errors([&] { caching_allocator(device).release_pool(id); });
}

bool pool_exists(c10::DeviceIndex device, c10::MempoolId_t id) {
  const CachingAllocator* const core = core_if_any(resolve_device(device));
  return core != nullptr && core->pool_exists(id);
}

int64_t pool_use_count(c10::DeviceIndex device, c10::MempoolId_t id) {
  const CachingAllocator* const core = core_if_any(resolve_device(device));
  return core != nullptr ? core->pool_uses(id) : 0;
}

c10::MempoolId_t new_pool_id() {
  static std::atomic<c10::CaptureId_t> last{0};
  return {0, last.fetch_add(1, std::memory_order_relaxed) + 1};
}

c10::DeviceAllocator* device_allocator() noexcept { return &the_allocator(); }

c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes) {
  return allocate_on_stream(device, bytes, bytes != 0 ? current_native_stream(device) : nullptr);
}

c10::DataPtr allocate_on_stream(c10::DeviceIndex device, size_t bytes, orStream_t stream) {
  const c10::Device where(kOpenRegType, device);
  if (bytes == 0) {
    initialize();  // a tensor without elements uses the device, too
    return {nullptr, nullptr, &free_nothing, where};
  }
  try {
    if (C10_UNLIKELY(memory_watchers.any() || profiles_memory())) {
      return allocate_watched(where, bytes, stream);
    }
    Block* const block = allocate_block(core_of(device), bytes, stream);
    return {block->pointer, block, &free_block, where};
  } catch (const allocator::Error& error) {
    if (error.code() == orErrorOutOfMemory) {
      report_out_of_memory(where, bytes);
    }
    throw_allocator_error(error);
  }
}

void free_block(void* context) {
  auto* const block = static_cast<Block*>(context);
  const auto device = static_cast<c10::DeviceIndex>(block->device);
  try {
    if (C10_UNLIKELY(memory_watchers.any() || profiles_memory())) {
      free_watched(block);
      return;
    }
    core_of(device).free(block);
  } catch (const std::exception& error) {
    // Issue a warning, because a deleter must not throw. The memory has been freed, but the error
    // must not be lost.
    TORCH_WARN("openreg: error while freeing memory: ", error.what());
  }
}

bool find_block(const void* pointer, BlockRange* block) noexcept {
  for (c10::DeviceIndex device = 0; device < OPENREG_MAX_DEVICES; ++device) {
    const CachingAllocator* const core = core_if_any(device);
    CachingAllocator::Description found;
    if (diagnostic_hooks().find_block(device, pointer, &found) ||
        (core != nullptr && core->describe(pointer, &found))) {
      *block = {found.base, found.size, found.in_use};
      return true;
    }
  }
  return false;
}

}  // namespace openreg
