// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/event.h"
#include "runtime/c10/memory_profiling.h"
#include "runtime/c10/stream.h"
#include "runtime/device/host_wait.h"

namespace openreg {
namespace {

struct DestroyEvent {
  void operator()(orEvent_t event) const noexcept { (void)orEventDestroy(event); }
};

// An event after the work that was queued on a stream when memory was freed. If the stream is being
// captured, the event cannot be recorded yet; it is then recorded after the capture.
struct Event {
  c10::Stream stream;
  std::unique_ptr<std::remove_pointer_t<orEvent_t>, DestroyEvent> native;
  bool complete = false;  // the driver has no events, so the host has waited for the work
};

// Waits for the work on a stream. Unlike a synchronization, this does not return the error of a
// kernel. Memory is freed in destructors, which must not throw it, and it is not lost.
void wait_for(orStream_t stream) {
  const HostWait wait;
  while (orStreamQuery(stream) == orErrorNotReady) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// A scope whose duration, in microseconds, is added to a statistic.
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

void free_host_block(void* context);

struct HostAllocatorImpl final : at::CachingHostAllocatorImpl<c10::Stream, Event> {
  using Base = at::CachingHostAllocatorImpl<c10::Stream, Event>;

  // Replaces torch's function, which handles memory from a capture differently. If such memory was
  // used by a stream, torch never reuses it, because a replay may use it at any time. Here, a
  // captured copy owns its memory, so no graph uses memory that was freed. In addition, torch
  // cannot process the events of such memory (it would lock a mutex twice). This class therefore
  // tracks the streams itself.
  void free(void* context) override {
    auto* const block = static_cast<at::HostBlock<c10::Stream>*>(context);
    if (in_forked_child()) {
      return;  // the child has a copy of the memory and no stream on which to record an event
    }
    if (block == nullptr || block->owning_pool_ == c10::MempoolId_t{0, 0}) {
      Base::free(context);
      return;
    }
    Used used{context, {}};
    {
      const std::lock_guard lock(block->mutex_);
      block->was_allocated_during_stream_capture_ = false;
      for (const c10::Stream& stream : block->streams_) {
        used.events.push_back({stream, nullptr});
      }
      block->streams_.clear();
    }
    {
      const auto lock = LockForWait(used_mutex_);
      used_.push_back(std::move(used));
    }
    free_used();
  }

  void empty_cache() override {
    free_used();
    Base::empty_cache();
  }

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
    events->push_back({stream, nullptr});
    (void)try_record(events->back());
  }

  bool query_event(Event& event) override {
    return try_record(event) &&
           (event.complete || orEventQuery(event.native.get()) != orErrorNotReady);
  }

  // Memory that was allocated during a capture and freed while streams used it.
  struct Used {
    void* context;
    std::vector<Event> events;
  };

  void free_used() {
    std::vector<Used> done;
    {
      // The thread that holds the mutex may be recording an event, which may wait for space in a
      // queue.
      const auto lock = LockForWait(used_mutex_);
      const auto first = std::partition(used_.begin(), used_.end(), [this](Used& used) {
        return !std::ranges::all_of(used.events,
                                    [this](Event& event) { return query_event(event); });
      });
      std::move(first, used_.end(), std::back_inserter(done));
      used_.erase(first, used_.end());
    }
    for (const Used& used : done) {
      Base::free(used.context);
    }
  }

  // Records the event if it has not been recorded yet. Returns false while the stream is being
  // captured.
  bool try_record(Event& event) {
    if (event.native != nullptr || event.complete) {
      return true;
    }
    if (stream_is_capturing(event.stream)) {
      return false;
    }
    const DeviceScope scope(event.stream.device_index());
    const orStream_t stream = native_stream(event.stream);
    orEvent_t native = nullptr;
    const orError_t error = create_recorded_event(&native, stream);
    event.native.reset(native);
    if (!driver_supports(error)) {
      wait_for(stream);
      event.complete = true;
    }
    return true;
  }

  c10::Stream get_current_stream() const override { return current_stream(-1); }

  bool stream_is_capturing(c10::Stream stream) const override {
    return is_initialized() && is_capturing(native_stream(stream));
  }

  std::mutex used_mutex_;
  std::vector<Used> used_;
};

struct HostAllocator final : at::CachingHostAllocatorInterface<HostAllocatorImpl, free_host_block> {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = CachingHostAllocatorInterface::allocate(bytes);
    if (const auto* const block = static_cast<const Block*>(data.get_context())) {
      report_to_profiler(block->ptr_, static_cast<int64_t>(block->size_));
    }
    return data;
  }

  void free_block(void* context) {
    if (const auto* const block = static_cast<const Block*>(context)) {
      void* const pointer = block->ptr_;
      const auto bytes = static_cast<int64_t>(block->size_);
      free(context);
      report_to_profiler(pointer, -bytes);
    }
  }

 private:
  using Block = at::HostBlock<c10::Stream>;

  // Reports a change of pinned memory to torch's profiler if it records memory
  // (profile_memory=True).
  void report_to_profiler(void* pointer, int64_t bytes) {
    if (!profiles_memory()) {
      return;
    }
    const at::HostStats stats = get_stats();
    c10::reportMemoryUsageToProfiler(
        pointer, bytes, static_cast<size_t>(stats.active_bytes.current),
        static_cast<size_t>(stats.allocated_bytes.current), c10::Device(c10::kCPU));
  }
};

// Returns the allocator. It is never destroyed, because tensors in static storage may exist longer
// than all other objects.
HostAllocator& host_allocator() {
  static auto* const allocator = std::make_unique<HostAllocator>().release();
  return *allocator;
}

void free_host_block(void* context) { host_allocator().free_block(context); }

const at::HostAllocatorRegistry<kOpenRegType> registered(&host_allocator());

}  // namespace

c10::Allocator* pinned_allocator() noexcept { return &host_allocator(); }

bool is_pinned(const void* pointer) noexcept {
  if (!is_initialized()) {
    return false;  // nothing is pinned yet, and the query must not initialize the device
  }
  orPointerAttributes attributes;
  return orPointerGetAttributes(&attributes, pointer) == orSuccess &&
         attributes.type == orMemoryTypeHost;
}

bool record_pinned_use(const c10::DataPtr& data, const c10::Stream& stream) {
  if (is_capturing(native_stream(stream))) {
    return data.get_deleter() == &free_host_block;
  }
  return host_allocator().record_event(data.get(), data.get_context(), stream);
}

}  // namespace openreg
