// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/symmetric_memory.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/private_stream.h"
#include "distributed/symmetric_rendezvous.h"
#include "runtime/c10/device_allocator.h"
#include "runtime/c10/error.h"
#include "runtime/c10/stream.h"
#include "runtime/device/host_wait.h"

namespace openreg {
namespace {

namespace symmetric = c10d::symmetric_memory;

// ------------------------------------------------------------------------------------- release

// Memory that no longer has an owner. It is freed when all streams that used it have passed their
// events.
struct Released {
  void* base;
  std::vector<std::shared_ptr<const SymmetricPeers>> peers;
  std::vector<c10::Event> events;

  bool passed() const {
    return std::all_of(events.begin(), events.end(), [](const c10::Event& event) {
      try {
        return event.query();
      } catch (const std::exception&) {
        return true;  // the event's stream was destroyed
      }
    });
  }
};

class ReleasedMemory {
 public:
  static ReleasedMemory& get() {
    // Never destroyed, because tensors may be freed until the very end of the process.
    static auto& all = *std::make_unique<ReleasedMemory>().release();
    return all;
  }

  void add(Released released) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(released));
  }

  // Frees the memory that streams no longer use. Returns whether any memory remains.
  bool sweep() noexcept {
    const std::lock_guard lock(mutex_);
    all_.remove_if([](Released& released) {
      if (!released.passed()) {
        return false;
      }
      while (!released.peers.empty()) {
        if (!release_peers(*released.peers.back())) {
          return false;
        }
        released.peers.pop_back();
      }
      (void)orFree(released.base);
      return true;
    });
    return !all_.empty();
  }

 private:
  std::mutex mutex_;
  std::list<Released> all_;
};

void* allocate(size_t bytes) {
  (void)ReleasedMemory::get().sweep();
  void* base = nullptr;
  orError_t error = orMalloc(&base, bytes);
  if (error == orErrorOutOfMemory) {
    device_allocator()->emptyCache();
    error = orMalloc(&base, bytes);
  }
  // Memory that streams still use can be freed when their kernels have run. These kernels have
  // timeouts, so retry.
  while (error == orErrorOutOfMemory && ReleasedMemory::get().sweep()) {
    {
      const HostWait wait;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    error = orMalloc(&base, bytes);
  }
  OPENREG_CHECK(error);
  return base;
}

}  // namespace

// --------------------------------------------------------------------------------- allocations

SymmetricAllocation::SymmetricAllocation(size_t bytes, c10::DeviceIndex device,
                                         std::optional<std::string> group)
    : bytes_(bytes),
      pad_bytes_(symmetric::get_signal_pad_size()),
      device_(device),
      group_(std::move(group)) {
  const SymmetricPiece piece{nullptr, bytes_, pad_bytes_, device_};
  const DeviceScope scope(device_);
  base_ = allocate(piece.bytes());
  try {
    const PrivateStream stream(device_);
    OPENREG_CHECK(orMemsetAsync(static_cast<char*>(base_) + piece.pad_offset(), 0,
                                piece.bytes() - piece.pad_offset(), stream.get()));
    synchronize_stream(stream.get());
  } catch (...) {
    (void)orFree(base_);
    throw;
  }
}

SymmetricAllocation::~SymmetricAllocation() {
  ReleasedMemory::get().add({base_, std::move(peers_), record_events()});
  (void)ReleasedMemory::get().sweep();
}

std::vector<c10::Event> SymmetricAllocation::record_events() noexcept {
  std::vector<c10::Event> events;
  try {
    record_stream(current_stream(device_));
    for (const c10::Stream& stream : streams_) {
      if (!is_capturing(native_stream(stream))) {
        events.emplace_back(kOpenRegType);
        events.back().record(stream);
      }
    }
  } catch (const std::exception&) {
    return events;  // the device was shut down, so no kernel is running
  }
  return events;
}

bool SymmetricAllocation::contains(const void* pointer) const {
  const auto* const start = static_cast<const char*>(base_);
  const auto* const byte = static_cast<const char*>(pointer);
  return byte >= start && byte < start + std::max<size_t>(bytes_, 1);
}

void SymmetricAllocation::record_stream(const c10::Stream& stream) {
  const std::lock_guard lock(streams_mutex_);
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

std::shared_ptr<const SymmetricPeers> SymmetricAllocation::rendezvous(
    const std::optional<std::string>& group) {
  const std::optional<std::string>& name = group.has_value() ? group : group_;
  TORCH_CHECK_VALUE(name.has_value(),
                    "symmetric memory: rendezvous needs a group: pass its name to "
                    "empty_strided_p2p or rendezvous");
  const auto lock = LockForWait(mutex_);
  for (const std::shared_ptr<const SymmetricPeers>& known : peers_) {
    if (known->group == *name) {
      return known;
    }
  }
  TORCH_CHECK(!is_capturing(current_native_stream(device_)),
              "symmetric memory: the first rendezvous of a tensor with group ", *name,
              " shares memory with other processes, which a graph cannot capture: call "
              "rendezvous() before the capture");
  (void)ReleasedMemory::get().sweep();
  return peers_.emplace_back(rendezvous_pieces({base_, bytes_, pad_bytes_, device_}, *name));
}

// ------------------------------------------------------------------------------ symmetric memory

orStream_t SymmetricMemoryOCCL::stream() const {
  const c10::Stream stream = current_stream(allocation_->device());
  allocation_->record_stream(stream);
  return native_stream(stream);
}

size_t SymmetricMemoryOCCL::offset_of(const at::Tensor& tensor) const {
  return static_cast<size_t>(static_cast<const char*>(tensor.const_data_ptr()) -
                             static_cast<const char*>(allocation_->base()));
}

void SymmetricMemoryOCCL::barrier(int channel, size_t timeout_ms) {
  check_occl(occlWindowBarrier(window(), channel, static_cast<int64_t>(timeout_ms), stream()));
}

void SymmetricMemoryOCCL::put_signal(int peer, int channel, size_t timeout_ms) {
  check_occl(
      occlWindowPutSignal(window(), peer, channel, static_cast<int64_t>(timeout_ms), stream()));
}

void SymmetricMemoryOCCL::wait_signal(int peer, int channel, size_t timeout_ms) {
  check_occl(
      occlWindowWaitSignal(window(), peer, channel, static_cast<int64_t>(timeout_ms), stream()));
}

void** SymmetricMemoryOCCL::device_array(const std::vector<void*>& addresses, at::Tensor& array) {
  const std::lock_guard lock(mutex_);
  if (!array.defined()) {
    const auto size = static_cast<int64_t>(addresses.size());
    const at::Tensor made = at::empty({size}, at::dtype(at::kLong).device(get_device()));
    OPENREG_CHECK(orMemcpyAsync(made.mutable_data_ptr(), addresses.data(), made.nbytes(),
                                orMemcpyHostToDevice, stream()));
    array = made;
  }
  return static_cast<void**>(array.mutable_data_ptr());
}

void** SymmetricMemoryOCCL::get_buffer_ptrs_dev() {
  return device_array(peers_->buffers, buffer_array_);
}

void** SymmetricMemoryOCCL::get_signal_pad_ptrs_dev() {
  return device_array(peers_->signal_pads, signal_pad_array_);
}

// ------------------------------------------------------------------------------------ allocator

namespace {

class Allocator final : public symmetric::SymmetricMemoryAllocator {
 public:
  void* alloc(size_t size, int device, const std::optional<std::string>& group) override {
    auto made = std::make_shared<SymmetricAllocation>(size, resolve_device(device), group);
    void* const base = made->base();
    const std::lock_guard lock(mutex_);
    allocations_.emplace(base, std::move(made));
    return base;
  }

  void free(void* pointer) override {
    std::shared_ptr<SymmetricAllocation> last;
    const std::lock_guard lock(mutex_);
    if (const auto found = allocations_.find(pointer); found != allocations_.end()) {
      last = std::move(found->second);
      allocations_.erase(found);
    }
  }

  size_t get_alloc_size(void* pointer) override {
    const auto found = find(pointer);
    TORCH_CHECK(found != nullptr, "symmetric memory: ", pointer,
                " is not the address of a tensor from empty_strided_p2p");
    return found->bytes();
  }

  // Returns null if `pointer` is not symmetric memory, as on CUDA.
  c10::intrusive_ptr<symmetric::SymmetricMemory> rendezvous(
      void* pointer, const std::optional<std::string>& group) override {
    std::shared_ptr<SymmetricAllocation> found = find(pointer);
    if (found == nullptr) {
      return nullptr;
    }
    auto peers = found->rendezvous(group);
    const auto offset = static_cast<size_t>(static_cast<const char*>(pointer) -
                                            static_cast<const char*>(found->base()));
    return c10::make_intrusive<SymmetricMemoryOCCL>(std::move(found), std::move(peers), offset);
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return kOpenRegType; }
  std::string name() override { return "OCCL"; }
  bool has_allocation(void* pointer) override { return find(pointer) != nullptr; }

 private:
  std::shared_ptr<SymmetricAllocation> find(const void* pointer) {
    const std::lock_guard lock(mutex_);
    auto after = allocations_.upper_bound(const_cast<void*>(pointer));
    if (after == allocations_.begin()) {
      return nullptr;
    }
    --after;
    return after->second->contains(pointer) ? after->second : nullptr;
  }

  std::mutex mutex_;
  std::map<void*, std::shared_ptr<SymmetricAllocation>> allocations_;  // those of live tensors
};

const bool registered = [] {
  if (!symmetric::has_allocator(kOpenRegType)) {
    const auto allocator = c10::make_intrusive<Allocator>();
    symmetric::register_availability(allocator->name(), allocator);
    symmetric::register_allocator(kOpenRegType, allocator);
  }
  return true;
}();

}  // namespace
}  // namespace openreg
