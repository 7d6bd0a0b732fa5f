// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <vector>

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

struct DestroyEvent {
  void operator()(orEvent_t event) const noexcept { (void)orEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<orEvent_t>, DestroyEvent>;

// Adds the microseconds of its life to a figure.
class Timer {
 public:
  Timer(std::mutex* mutex, c10::CachingAllocator::DurationStat* stat)
      : mutex_(mutex), stat_(stat) {}
  ~Timer() {
    const auto time = std::chrono::steady_clock::now() - start_;
    const std::lock_guard lock(*mutex_);
    stat_->increase(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex* const mutex_;
  c10::CachingAllocator::DurationStat* const stat_;
};

struct HostAllocatorImpl final : at::CachingHostAllocatorImpl<c10::Stream, Event> {
  void copy_data(void* dst, const void* src, std::size_t size) const override {
    OPENREG_CHECK(orMemcpy(dst, src, size, orMemcpyHostToHost));
  }

 private:
  void allocate_host_memory(size_t size, void** pointer) override {
    initialize();
    const Timer timer(&stats_.timing_mutex_, &stats_.host_alloc_time);
    OPENREG_CHECK(orMallocHost(pointer, size));
  }

  void free_block(at::HostBlock<c10::Stream>* block) override {
    const Timer timer(&stats_.timing_mutex_, &stats_.host_free_time);
    OPENREG_CHECK(orFreeHost(block->ptr_));
  }

  void record_stream(std::optional<std::vector<Event>>& events, c10::Stream stream) override {
    if (stream_is_capturing(stream)) {
      events->emplace_back(nullptr);
      return;
    }
    const DeviceScope scope(stream.device_index());
    orEvent_t event = nullptr;
    OPENREG_CHECK(orEventCreate(&event));
    events->emplace_back(event);
    OPENREG_CHECK(orEventRecord(event, native_stream(stream)));
  }

  // No event stands for memory that a captured copy uses: replays may come at any time, so it is
  // never given to anybody else.
  bool query_event(Event& event) override {
    return event != nullptr && orEventQuery(event.get()) != orErrorNotReady;
  }

  c10::Stream get_current_stream() const override { return current_stream(-1); }

  bool stream_is_capturing(c10::Stream stream) const override {
    return is_initialized() && is_capturing(native_stream(stream));
  }
};

void free_host_block(void* context);

struct HostAllocator final : at::CachingHostAllocatorInterface<HostAllocatorImpl, free_host_block> {
};

// Never destroyed: tensors in static storage may outlive every other object.
HostAllocator& host_allocator() {
  static auto* const allocator = std::make_unique<HostAllocator>().release();
  return *allocator;
}

void free_host_block(void* context) { host_allocator().free(context); }

const at::HostAllocatorRegistry<kOpenRegType> registered(&host_allocator());

}  // namespace

c10::Allocator* pinned_allocator() noexcept { return &host_allocator(); }

bool is_pinned(const void* pointer) noexcept {
  if (!is_initialized()) {
    return false;  // nothing can be pinned yet, and asking must not start the device
  }
  orPointerAttributes attributes;
  return orPointerGetAttributes(&attributes, pointer) == orSuccess &&
         attributes.type == orMemoryTypeHost;
}

bool record_pinned_use(const c10::DataPtr& data, const c10::Stream& stream) {
  return host_allocator().record_event(data.get(), data.get_context(), stream);
}

}  // namespace openreg
