// SPDX-License-Identifier: BSD-3-Clause
//
// transport.h - the interface that moves a group's tensors, either only between processes on one
// machine (local_transport.h) or also between machines (machine_transport.h).
//
// The group's connection to a device and each Work share the ownership of a transport. A call
// enqueues an operation on the current stream and returns immediately. It throws the errors that it
// can detect itself. Tensors are dense, on the group's device, and of the same dtype. Only one
// thread at a time may call a transport, except for ended() and abort().
#ifndef DISTRIBUTED_TRANSPORT_H_
#define DISTRIBUTED_TRANSPORT_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "distributed/occl/occl.h"

namespace openreg {

class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) = 0;
  // Copies the root's `input` to `output` on all ranks. Other ranks ignore `input`.
  virtual void broadcast(const at::Tensor& output, const at::Tensor& input, int root) = 0;
  // Reduces `input` from all ranks into `output` on `root`. Other ranks ignore `output`.
  virtual void reduce(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
                      int root) = 0;
  // Copies the inputs of all ranks, one after the other, to `output`.
  virtual void all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual void reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                              const c10d::ReduceOp& op) = 0;
  virtual void all_to_all(const at::Tensor& output, const at::Tensor& input) = 0;
  // Runs an all-to-all with parts of any size. Rank i receives the i-th input.
  virtual void exchange(const std::vector<at::Tensor>& outputs,
                        const std::vector<at::Tensor>& inputs) = 0;
  // Copies the inputs of all ranks, one after the other, to `output` on `root`. Other ranks ignore
  // `output`.
  virtual void gather(const at::Tensor& output, const at::Tensor& input, int root) = 0;
  // Copies the i-th part of the root's `input` to rank i. Other ranks ignore `input`.
  virtual void scatter(const at::Tensor& output, const at::Tensor& input, int root) = 0;
  virtual void barrier() = 0;
  virtual void send(const at::Tensor& tensor, int peer, int tag) = 0;
  // Receives a message. For a message from any rank, `source`, which may be null, receives the
  // sender's rank. It must be valid until the operation has finished.
  virtual void receive(const at::Tensor& tensor, int peer, int tag, int* source) = 0;

  // Group the operations between begin_group() and end_group(), which run as a single operation.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  // Discards the group's operations. Called instead of end_group() after an exception.
  virtual void drop_group() = 0;

  // Returns the reason why the transport has failed, or nullopt if it has not. `result`, which may
  // be null, receives the kind of the failure.
  virtual std::optional<std::string> ended(occlResult_t* result = nullptr) const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // Ends all operations, on all ranks. Each rank's error contains the reason.
  virtual void abort(const std::string& reason) = 0;
  // Waits until all enqueued operations have finished.
  virtual void finalize() = 0;

  // Releases memory until resume(). All ranks must call it. Until resume(), operations throw.
  virtual void suspend() = 0;
  virtual void resume() = 0;
  virtual occlMemoryStats_t memory_stats() const = 0;
};

// Groups the operations on `transport` during its lifetime. If an exception ends the lifetime
// before end(), the operations are discarded.
class TransportGroup {
 public:
  explicit TransportGroup(Transport& transport) : transport_(transport) {
    transport_.begin_group();
  }
  ~TransportGroup() {
    if (!ended_) {
      transport_.drop_group();
    }
  }
  TransportGroup(const TransportGroup&) = delete;
  TransportGroup& operator=(const TransportGroup&) = delete;
  void end() {
    ended_ = true;
    transport_.end_group();
  }

 private:
  Transport& transport_;
  bool ended_ = false;
};

}  // namespace openreg

#endif  // DISTRIBUTED_TRANSPORT_H_
