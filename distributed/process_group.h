// SPDX-License-Identifier: BSD-3-Clause
//
// process_group.h - torch.distributed on this device: a c10d backend over occl, with the semantics
// of ProcessGroupNCCL.
//
// The first collective on a device (or eagerConnectSingleDevice) creates a communicator for the
// device. To do so, the group's first rank puts the communicator's id into the store. Operations
// with asyncOp run on the group's own stream, which first waits for the caller's current stream.
// Other operations run on the current stream.
//
// torch's ProcessGroup owns the object. torch guarantees that only one thread at a time calls it,
// except for abort() and getError().
#ifndef DISTRIBUTED_PROCESS_GROUP_H_
#define DISTRIBUTED_PROCESS_GROUP_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <vector>

#include "distributed/completion_thread.h"
#include "distributed/message_streams.h"
#include "distributed/work.h"

namespace openreg {

class OPENREG_API ProcessGroupOCCL final : public c10d::Backend {
 public:
  static constexpr char kName[] = "occl";

  struct OPENREG_API Options final : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options(kName, timeout) {}
    bool is_high_priority_stream = false;
  };

  ProcessGroupOCCL(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   c10::intrusive_ptr<Options> options);
  ~ProcessGroupOCCL() override;

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  // Sums or averages COO tensors. The host waits until it knows the number of elements of each
  // rank.
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(
      std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  // Synchronizes the ranks only through the store, without waiting for operations on the device.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int peer, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int peer, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

  void setSequenceNumberForGroup() override {}  // the sequence number starts at 0 on all ranks
  uint64_t getSequenceNumberForGroup() override { return collectives_; }
  void enableCollectivesTiming() override { timed_ = true; }
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void eagerConnectSingleDevice(at::Device device) override;
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                          const int& rank, const int& size) override;
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& excluded, int flags,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  // Returns the device's normal allocator. Special memory is unnecessary, because other ranks can
  // read all device memory.
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // Releases the memory of the group's communicators until resume(). All ranks must call it. Until
  // resume(), no rank may replay a graph that contains the group's collectives.
  void suspend() override;
  void resume() override;
  // Returns the number of bytes of each kind, summed over the communicators, and the entry
  // "suspended", which is 1 if the communicators are suspended and otherwise 0.
  std::unordered_map<std::string, uint64_t> getMemoryStats() override;

 private:
  using Call = std::function<void(Transport&, WorkOCCL&)>;

  // The group's resources for one device.
  struct Connection {
    std::shared_ptr<Transport> transport;
    c10::Stream stream;
  };

  // The state of an operation that the group keeps until the operation has finished.
  struct Pending {
    std::shared_ptr<OperationEvents> events;
    std::vector<RecordedOperation> records;
    bool timed;
  };

  Connection connection(c10::Device device);
  std::map<c10::DeviceIndex, Connection> connections();
  std::shared_ptr<Transport> make_transport(c10::Device device, const std::string& key);
  // Creates the communicator of the ranks of one machine. `position` is the index of this rank
  // among `ranks`.
  occlComm_t connect(c10d::Store& store, const std::string& key, const std::vector<int>& ranks,
                     size_t position);
  std::optional<c10::DeviceIndex> first_device();
  // Enqueues an operation, or adds it to the open coalesced block. `peer` is recorded in profiles:
  // it is the root, the other rank of a message, or -1 if there is neither. `parts` contains the
  // operations of a coalesced one.
  c10::intrusive_ptr<c10d::Work> run(c10d::OpType type, const std::string& name, bool async,
                                     std::vector<at::Tensor> inputs,
                                     std::vector<at::Tensor> outputs, const Call& call,
                                     int peer = -1, std::vector<WorkOCCL::Operation> parts = {});
  // Returns the keys of the messages in the operation and its parts.
  static std::vector<MessageStreams::Key> messages_of(
      const WorkOCCL::Operation& operation, const std::vector<WorkOCCL::Operation>& parts);
  int stream_priority() const { return options_->is_high_priority_stream ? -1 : 0; }
  GroupLabel label() const;
  // Removes finished operations from pending_ and completes their records.
  void retire();
  void record(const WorkOCCL::Operation& operation, uint64_t sequence, Pending& pending);

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  bool timed_ = false;
  uint64_t collectives_ = 0;
  uint64_t point_to_point_ = 0;
  uint64_t operations_ = 0;

  std::deque<Pending> pending_;
  static constexpr size_t kRetireAllAt = 64;
  size_t retire_all_at_ = kRetireAllAt;
  MessageStreams message_streams_;
  std::unique_ptr<CompletionThread> hook_thread_;
  std::shared_ptr<const CompletionThread::Function> hook_;
  // The events of captured receives from any rank. The group keeps them until its end, because a
  // graph may run the receives at any time.
  std::vector<std::shared_ptr<OperationEvents>> captured_;
  std::optional<RecordedGroup> recorded_;

  std::mutex mutex_;  // guards the next three members
  std::map<c10::DeviceIndex, Connection> connections_;
  std::optional<c10::DeviceIndex> first_device_;  // the device that was connected first
  std::string ended_;                             // the reason why no more connections can be made
  uint64_t monitored_barriers_ = 0;
  uint64_t shrinks_ = 0;

  // The calls between startCoalescing and endCoalescing.
  struct Coalesced {
    std::optional<c10::Device> device;
    bool async;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::vector<Call> calls;
    std::vector<WorkOCCL::Operation> operations;
  };
  std::optional<Coalesced> coalesced_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_PROCESS_GROUP_H_
