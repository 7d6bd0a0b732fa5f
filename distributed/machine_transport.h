// SPDX-License-Identifier: BSD-3-Clause
//
// machine_transport.h - ranks on several machines: occl within each, Gloo between them.
//
// A collective runs in three steps on the stream: the ranks of a machine bring their data to the
// first of them, the leader; the leaders exchange it from pinned memory, in a host function; each
// leader gives the result to its machine. Messages between ranks go by Gloo, whatever the machine.
//
// A failure between machines ends the communicator of the machine, and so the operations of all its
// ranks; leaders tell each other of it before their next exchange. Nothing of this can be captured
// in a graph: a replay could not be told from a call by the other machines.
#ifndef DISTRIBUTED_MACHINE_TRANSPORT_H_
#define DISTRIBUTED_MACHINE_TRANSPORT_H_

#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "distributed/network.h"
#include "distributed/topology.h"
#include "distributed/transport.h"

namespace openreg {

class MachineTransport final : public Transport {
 public:
  // `gloo` has all ranks of the group.
  MachineTransport(c10::Device device, Topology topology, std::unique_ptr<Transport> local,
                   c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout);
  // Waits for what is enqueued.
  ~MachineTransport() override;

  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  void broadcast(const at::Tensor& output, const at::Tensor& input, int root) override;
  void reduce(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
              int root) override;
  void all_gather(const at::Tensor& output, const at::Tensor& input) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                      const c10d::ReduceOp& op) override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void exchange(const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& inputs) override;
  void gather(const at::Tensor& output, const at::Tensor& input, int root) override;
  void scatter(const at::Tensor& output, const at::Tensor& input, int root) override;
  void barrier() override;
  void send(const at::Tensor& tensor, int peer, int tag) override;
  void receive(const at::Tensor& tensor, int peer, int tag, int* source) override;
  // Messages of a group are under way at the same time; collectives run one after the other.
  void begin_group() override { ++groups_; }
  void end_group() override;
  void drop_group() override;
  std::optional<std::string> ended(occlResult_t* result) const override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) override;
  void finalize() override;

 private:
  class State;

  // A message of the network, and the tensor that a received one is for.
  struct Message {
    Network::Message network;
    bool sent;
    at::Tensor target;
  };
  Message outgoing(const at::Tensor& tensor, int peer, int tag);
  Message incoming(const at::Tensor& tensor, int peer, int tag, int* source);
  // The tag of the network for one of a program. Throws if no message can be enqueued.
  int tag_of_program(int tag) const;
  // At once, or with the others of the group.
  void enqueue(Message message);
  void pass(std::vector<Message> messages);

  // Runs what enqueues a collective, behind the one before, whatever its stream.
  void in_order(const std::function<void()>& enqueue);
  void check_not_over() const;
  void check_rank(const char* name, int rank) const;
  // Has the current stream run a function on the host. What it throws ends the transport.
  void on_host(std::function<void(State&)> function);
  // The leaders' part of a collective: they compare `what` first.
  void between_leaders(const std::string& what, std::function<void(State&)> function);
  // The rows of a [ranks, n] tensor as [machines, most(), n], and back.
  at::Tensor by_machine(const at::Tensor& by_rank) const;
  void by_rank(const at::Tensor& output, const at::Tensor& by_machine) const;
  int64_t machines() const { return static_cast<int64_t>(topology_.machines.size()); }
  int64_t here() const { return static_cast<int64_t>(topology_.local().size()); }
  Transport& local() const;

  const c10::Device device_;
  const Topology topology_;
  std::unique_ptr<State> state_;
  c10::Event last_;  // at the end of the last collective
  int groups_ = 0;
  std::vector<Message> messages_;  // of the group
};

}  // namespace openreg

#endif  // DISTRIBUTED_MACHINE_TRANSPORT_H_
