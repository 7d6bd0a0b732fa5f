// SPDX-License-Identifier: BSD-3-Clause
//
// transport.h - how the tensors of a group travel: between processes of one machine
// (local_transport.h), or between machines too (machine_transport.h).
//
// Belongs to the connection of a group to a device, and to each Work. Operations are enqueued on
// the current stream and return at once; they throw what a call can see. Tensors are dense, of the
// group's device, and of one type. Threads: one at a time, except ended() and abort().
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
  // `input` counts on `root` only.
  virtual void broadcast(const at::Tensor& output, const at::Tensor& input, int root) = 0;
  // `output` counts on `root` only.
  virtual void reduce(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
                      int root) = 0;
  // `output` has the inputs of all ranks, one after the other.
  virtual void all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual void reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                              const c10d::ReduceOp& op) = 0;
  virtual void all_to_all(const at::Tensor& output, const at::Tensor& input) = 0;
  // All-to-all of parts of any sizes: the i-th input goes to rank i.
  virtual void exchange(const std::vector<at::Tensor>& outputs,
                        const std::vector<at::Tensor>& inputs) = 0;
  // `output` counts on `root` only.
  virtual void gather(const at::Tensor& output, const at::Tensor& input, int root) = 0;
  // `input` counts on `root` only.
  virtual void scatter(const at::Tensor& output, const at::Tensor& input, int root) = 0;
  virtual void barrier() = 0;
  virtual void send(const at::Tensor& tensor, int peer, int tag) = 0;
  // `source` (may be null) lives until the operation is done.
  virtual void receive(const at::Tensor& tensor, int peer, int tag, int* source) = 0;

  // What is between the two runs as one.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  // In place of end_group(): nothing of the group is run.
  virtual void drop_group() = 0;

  // Why it is over, or nothing.
  virtual std::optional<std::string> ended(occlResult_t* result = nullptr) const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // All ranks that notice have the reason in their errors.
  virtual void abort(const std::string& reason) = 0;
  // Waits for what is enqueued.
  virtual void finalize() = 0;
};

// A group that is dropped where something throws before its end.
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
