// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/device_allocator.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/device_source.h"
#include "runtime/allocator/device_timeline.h"
#include "runtime/c10/error.h"
#include "runtime/c10/sharing.h"
#include "runtime/c10/stream.h"
#include "runtime/c10/stream_sanitizer.h"

namespace openreg {
namespace {

namespace stats = c10::CachingDeviceAllocator;
using allocator::Block;
using allocator::CachingAllocator;

// The core's exceptions as torch's.
[[noreturn]] void throw_allocator_error(const allocator::Error& error) {
  TORCH_CHECK_WITH(OutOfMemoryError, error.code() != orErrorOutOfMemory, error.what());
  TORCH_CHECK(error.code() != orErrorForked,
              "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with "
              "multiprocessing, you must use the 'spawn' start method");
  TORCH_CHECK(false, error.what());
}

// What one device's allocator is made of. Never destroyed: tensors in static storage may outlive
// it.
struct DeviceMemory {
  explicit DeviceMemory(int device) : source(device), core(device, &source, &timeline) {}
  allocator::DeviceSource source;
  allocator::DeviceTimeline timeline;
  CachingAllocator core;
};

std::array<std::atomic<DeviceMemory*>, OPENREG_MAX_DEVICES> memories{};

CachingAllocator* core_if_any(c10::DeviceIndex device) {
  DeviceMemory* const memory =
      memories[static_cast<size_t>(device)].load(std::memory_order_acquire);
  return memory != nullptr ? &memory->core : nullptr;
}

CachingAllocator& make_core(c10::DeviceIndex device) {
  static std::mutex making;
  initialize();
  const std::lock_guard<std::mutex> lock(making);
  auto& memory = memories[static_cast<size_t>(device)];
  if (memory.load(std::memory_order_relaxed) == nullptr) {
    memory.store(std::make_unique<DeviceMemory>(device).release(), std::memory_order_release);
  }
  return *core_if_any(device);
}

CachingAllocator& core_of(c10::DeviceIndex device) {
  CachingAllocator* const core = core_if_any(device);
  return C10_LIKELY(core != nullptr) ? *core : make_core(device);
}

void free_nothing(void* /*context*/) {}

stats::Stat to_torch(const allocator::Stat& from) {
  stats::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

stats::StatArray to_torch(const allocator::Stats& from, allocator::Quantity quantity) {
  stats::StatArray to;
  static_assert(allocator::kPoolTypes == std::tuple_size_v<stats::StatArray>);
  for (size_t type = 0; type < allocator::kPoolTypes; ++type) {
    to[type] = to_torch(from.stat[quantity][type]);
  }
  return to;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current_device(), bytes); }

  // No raw_allocate: a block can not be found again from its address alone.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  // In the order of the current stream of the device that is current, as other copies.
  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    OPENREG_CHECK(orMemcpyAsync(dst, src, bytes, orMemcpyDeviceToDevice,
                                current_native_stream(current_device())));
  }

  bool initialized() override { return is_initialized(); }

  void emptyCache(c10::MempoolId_t /*pool*/) override {
    for_each_core([](CachingAllocator& core) { core.empty_cache(); });
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Block* const block = block_of(data);
    if (block == nullptr) {
      record_shared(data, stream);
      return;  // no memory, or memory whose owner has to know
    }
    core_of(static_cast<c10::DeviceIndex>(block->device))
        .record_stream(block, native_stream(stream));
    if (C10_UNLIKELY(sanitizes_streams())) {
      sanitize_guard(block->pointer, native_stream(stream));
    }
  }

  stats::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    CachingAllocator* const core = core_if_any(resolve_device(device));
    const allocator::Stats from = core != nullptr ? core->stats() : allocator::Stats();
    stats::DeviceStats to;
    to.allocation = to_torch(from, allocator::kAllocation);
    to.segment = to_torch(from, allocator::kSegment);
    to.active = to_torch(from, allocator::kActive);
    to.inactive_split = to_torch(from, allocator::kInactiveSplit);
    to.allocated_bytes = to_torch(from, allocator::kAllocatedBytes);
    to.reserved_bytes = to_torch(from, allocator::kReservedBytes);
    to.active_bytes = to_torch(from, allocator::kActiveBytes);
    to.inactive_split_bytes = to_torch(from, allocator::kInactiveSplitBytes);
    to.requested_bytes = to_torch(from, allocator::kRequestedBytes);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
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

  // Free: what the driver could still give, without what this allocator keeps in its cache.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
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
        try {
          function(*core);
        } catch (const allocator::Error& error) {
          throw_allocator_error(error);
        }
      }
    }
  }
};

// When the device is full, what other processes have given back meanwhile may be room.
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

DeviceAllocator& the_allocator() {
  static auto* const allocator = std::make_unique<DeviceAllocator>().release();
  return *allocator;
}

const bool registered = [] {
  c10::SetAllocator(kOpenRegType, &the_allocator());
  return true;
}();

// In a signal handler, about an address that the host touched.
int describe_memory(const void* pointer, orMemoryRange* range) {
  for (c10::DeviceIndex device = 0; device < OPENREG_MAX_DEVICES; ++device) {
    const CachingAllocator* const core = core_if_any(device);
    CachingAllocator::Description found;
    if (core != nullptr && core->describe(pointer, &found)) {
      *range = {found.base, found.size, found.in_use ? 1 : 0};
      return 1;
    }
  }
  return 0;
}

}  // namespace

c10::DeviceAllocator* device_allocator() noexcept { return &the_allocator(); }

c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes) {
  const c10::Device where(kOpenRegType, device);
  if (bytes == 0) {
    return {nullptr, nullptr, &free_nothing, where};
  }
  try {
    const orStream_t stream = current_native_stream(device);
    Block* const block = allocate_block(core_of(device), bytes, stream);
    c10::DataPtr data(block->pointer, block, &free_block, where);
    if (C10_UNLIKELY(sanitizes_streams())) {
      sanitize_allocation(block->pointer, bytes, stream);
    }
    return data;
  } catch (const allocator::Error& error) {
    throw_allocator_error(error);
  }
}

void free_block(void* context) {
  auto* const block = static_cast<Block*>(context);
  try {
    if (C10_UNLIKELY(sanitizes_streams())) {
      sanitize_free(block->pointer);  // before another thread can get it
    }
    core_of(static_cast<c10::DeviceIndex>(block->device)).free(block);
  } catch (const std::exception& error) {
    // A deleter must not throw; the memory is free, but the reason must not be lost.
    TORCH_WARN("openreg: while memory was freed: ", error.what());
  }
}

void describe_memory_to_driver() { OPENREG_CHECK(orSetMemoryDescriber(&describe_memory)); }

}  // namespace openreg
