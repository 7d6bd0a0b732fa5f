// SPDX-License-Identifier: BSD-3-Clause
//
// machine_transport.h - the transport between ranks on several machines. It uses occl within each
// machine and Gloo between the machines.
//
// A collective runs in three steps on the stream. First, the ranks of a machine move their data to
// their leader, which is the machine's first rank. Then the leaders exchange the data from pinned
// memory, in a host function. Finally, each leader distributes the result on its machine. Messages
// between ranks always use Gloo, even on one machine.
//
// A failure between machines ends the machine's communicator, and with it the operations of all its
// ranks. Leaders report the failure to each other before their next exchange. A graph cannot
// capture these operations, because the other machines could not distinguish a replay from a call.
#ifndef DISTRIBUTED_MACHINE_TRANSPORT_H_
#define DISTRIBUTED_MACHINE_TRANSPORT_H_

#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "distributed/leader_exchange.h"
#include "distributed/network.h"
#include "distributed/topology.h"
#include "distributed/transport.h"

namespace openreg {

class MachineTransport final : public Transport {
 public:
  // Creates the transport. `gloo` must contain all ranks of the group.
  MachineTransport(c10::Device device, Topology topology, std::unique_ptr<Transport> local,
                   c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout);
  // Waits for enqueued operations.
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
  // Messages between begin_group() and end_group() run concurrently. Collectives in a group still
  // run one after the other.
  void begin_group() override { ++groups_; }
  void end_group() override;
  void drop_group() override;
  std::optional<std::string> ended(occlResult_t* result) const override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) override;
  void finalize() override;
  void suspend() override;
  void resume() override;
  occlMemoryStats_t memory_stats() const override;

 private:
  // A network message and, if this rank receives it, its destination tensor.
  struct Message {
    Network::Message network;
    bool sent;
    at::Tensor target;
  };
  Message outgoing(const at::Tensor& tensor, int peer, int tag);
  Message incoming(const at::Tensor& tensor, int peer, int tag, int* source);
  // Returns the network tag for a program's tag. Throws if the stream is being captured, the tag is
  // out of range or the transport has failed.
  int tag_of_program(int tag) const;
  // Enqueues a message, either immediately or together with the other messages of an open group.
  void enqueue(Message message);
  void pass(std::vector<Message> messages);

  // Enqueues a collective so that it runs after the previous one, even if the previous one was
  // enqueued on another stream.
  void in_order(const std::function<void()>& enqueue);
  void check_not_ended() const;
  void check_rank(const char* name, int rank) const;
  // Runs a function on the host, in the order of the current stream. If the function throws, the
  // transport fails.
  void on_host(std::function<void(LeaderExchange&)> function);
  // On a leader, enqueues the leaders' part of a collective. The function runs after the leaders
  // have checked that `what` is the same on all of them.
  void between_leaders(const std::string& what, std::function<void(LeaderExchange&)> function);
  // Converts the rows of a [ranks, n] tensor to [machines, most(), n], and back.
  at::Tensor by_machine(const at::Tensor& by_rank) const;
  void by_rank(const at::Tensor& output, const at::Tensor& by_machine) const;
  int64_t machines() const { return static_cast<int64_t>(topology_.machines.size()); }
  int64_t here() const { return static_cast<int64_t>(topology_.local().size()); }
  Transport& local() const;

  const c10::Device device_;
  const Topology topology_;
  std::unique_ptr<LeaderExchange> exchange_;
  c10::Event last_;  // recorded at the end of the last collective
  int groups_ = 0;
  std::vector<Message> messages_;  // messages of the open group
};

}  // namespace openreg

#endif  // DISTRIBUTED_MACHINE_TRANSPORT_H_
