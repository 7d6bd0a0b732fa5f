// SPDX-License-Identifier: BSD-3-Clause
//
// symmetric_memory.h - torch's symmetric memory on this device: memory that all ranks of a group
// can address directly.
//
// An allocation is one range of device memory. It contains the buffer, its signal pad, and the
// window's state (occl/window.h). A rendezvous shares it with the group through the driver's
// handles (orIpcExport) and creates a window over the memory of all ranks.
//
// Ownership. An allocation is owned by its tensor (until SymmetricMemoryAllocator::free) and by
// each of its SymmetricMemory objects. When the last owner is destroyed, the memory and the
// mappings of the peers' memory are released, but only after the work on the streams that used
// them. These streams are the current stream and those on which operations on the memory were
// enqueued. If the owner frees the memory, a peer's mapping stays valid for the peer. Any thread
// may call these functions.
#ifndef DISTRIBUTED_SYMMETRIC_MEMORY_H_
#define DISTRIBUTED_SYMMETRIC_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <utility>
#include <vector>

#include "distributed/occl/window.h"
#include "runtime/c10/device.h"

namespace openreg {

// The memory of a group's ranks, and the resources that are released together with it.
struct SymmetricPeers {
  std::string group;
  int rank = 0;
  std::vector<int> global_ranks;
  std::vector<void*> buffers;      // indexed by rank
  std::vector<void*> signal_pads;  // indexed by rank
  // The memory imported from the peers, each with the device that owns it.
  std::vector<std::pair<void*, c10::DeviceIndex>> imports;
  occlWindow_t window = nullptr;
};

class SymmetricAllocation {
 public:
  // Allocates the memory and waits until its signal pad has been set to zero.
  SymmetricAllocation(size_t bytes, c10::DeviceIndex device, std::optional<std::string> group);
  ~SymmetricAllocation();
  SymmetricAllocation(const SymmetricAllocation&) = delete;
  SymmetricAllocation& operator=(const SymmetricAllocation&) = delete;

  void* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  c10::DeviceIndex device() const { return device_; }
  bool contains(const void* pointer) const;

  // Returns the memory of all ranks in a group. The first call for a group waits for all ranks, and
  // all ranks must make it.
  std::shared_ptr<const SymmetricPeers> rendezvous(const std::optional<std::string>& group);
  // Makes the later release of the memory wait for the work that is queued on `stream` at the time
  // of the release.
  void record_stream(const c10::Stream& stream);

 private:
  // Records and returns the events that must complete before the memory is released.
  std::vector<c10::Event> record_events() noexcept;

  const size_t bytes_;
  const size_t pad_bytes_;
  const c10::DeviceIndex device_;
  const std::optional<std::string> group_;
  void* base_ = nullptr;

  std::mutex mutex_;  // guards the next member; held while a rendezvous waits
  std::vector<std::shared_ptr<const SymmetricPeers>> peers_;
  std::mutex streams_mutex_;
  std::vector<c10::Stream> streams_;
};

class OPENREG_API SymmetricMemoryOCCL final : public c10d::symmetric_memory::SymmetricMemory {
 public:
  SymmetricMemoryOCCL(std::shared_ptr<SymmetricAllocation> allocation,
                      std::shared_ptr<const SymmetricPeers> peers, size_t offset)
      : allocation_(std::move(allocation)), peers_(std::move(peers)), offset_(offset) {}

  std::vector<void*> get_buffer_ptrs() override { return peers_->buffers; }
  std::vector<void*> get_signal_pad_ptrs() override { return peers_->signal_pads; }
  // Return arrays that contain the addresses above and are stored in device memory. The addresses
  // are device addresses, which a kernel must translate before it reads from them.
  void** get_buffer_ptrs_dev() override;
  void** get_signal_pad_ptrs_dev() override;
  size_t get_buffer_size() override { return allocation_->bytes(); }
  size_t get_offset() override { return offset_; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }
  void barrier(int channel, size_t timeout_ms) override;
  void put_signal(int peer, int channel, size_t timeout_ms) override;
  void wait_signal(int peer, int channel, size_t timeout_ms) override;
  int get_rank() override { return peers_->rank; }
  int get_world_size() override { return static_cast<int>(peers_->buffers.size()); }
  c10::Device get_device() override { return {kOpenRegType, allocation_->device()}; }
  const std::vector<int>& get_rank_to_global_rank() override { return peers_->global_ranks; }
  bool world_within_direct_access() override { return true; }

  // Return the window and the current stream, for an operation. A later release of the memory waits
  // for the work on this stream.
  occlWindow_t window() const { return peers_->window; }
  orStream_t stream() const;
  // Returns the distance in bytes from the start of the buffer to the tensor's first element.
  size_t offset_of(const at::Tensor& tensor) const;

 private:
  void** device_array(const std::vector<void*>& addresses, at::Tensor& array);

  const std::shared_ptr<SymmetricAllocation> allocation_;
  const std::shared_ptr<const SymmetricPeers> peers_;
  const size_t offset_;
  std::mutex mutex_;  // guards the next two members
  at::Tensor buffer_array_;
  at::Tensor signal_pad_array_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_SYMMETRIC_MEMORY_H_
