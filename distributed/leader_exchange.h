// SPDX-License-Identifier: BSD-3-Clause
//
// leader_exchange.h - the part of a machine transport that runs on the host: messages between the
// machines' leaders, and the host functions that send and receive these messages.
//
// A host function cannot free device memory. Therefore finished tasks are kept until drop_done().
// While host functions run, a thread watches the machine's communicator and aborts the functions if
// another rank has ended the communicator. Any thread may use the object, except that only host
// functions may call agree() and exchange(). Host functions run one after the other.
#ifndef DISTRIBUTED_LEADER_EXCHANGE_H_
#define DISTRIBUTED_LEADER_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "distributed/network.h"
#include "distributed/topology.h"
#include "distributed/transport.h"

namespace openreg {

// Network message tags. The tags of a program, which are not negative, are shifted by kFirstTag.
enum NetworkTag : int { kAgreementTag, kCollectiveTag, kExchangeTag, kFirstTag };

// Returns a list that contains the tensor once per machine, for an exchange that sends the same
// data to all machines.
std::vector<at::Tensor> copies(const at::Tensor& tensor, int64_t machines);

class LeaderExchange {
 public:
  // A host function, and the exchange that runs it.
  struct Task {
    LeaderExchange& exchange;
    std::function<void(LeaderExchange&)> function;
  };

  // Creates the exchange. `topology` must outlive it; `gloo` must contain all ranks of the group.
  LeaderExchange(const Topology& topology, std::unique_ptr<Transport> local,
                 c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout);

  // Ends this machine's communicator and the connections to the other machines, with `text` as the
  // reason.
  void fail(const std::string& text);

  // Throws unless all leaders are about to run the same operation, `what`.
  void agree(const std::string& what);

  // Sends the i-th tensor of `to` to the leader of machine i and receives the i-th tensor of `from`
  // from it. Undefined tensors are skipped.
  void exchange(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                int tag = kCollectiveTag);

  // Count the enqueued tasks. begin_task() must be called before the launch. run() becomes the
  // owner of the task, runs it and ends it. If the launch fails, the caller must call end_task()
  // instead.
  void begin_task();
  void end_task();
  void run(Task* task);

  // Destroys tasks that have run.
  void drop_done();

  // Returns whether this process is a forked child, which has neither the threads nor the
  // connections of its parent.
  bool in_child() const;

  // Waits until all functions have run. Returns false if some functions will never run, because the
  // process is exiting or is a forked child.
  bool wait_idle();

  Network network;
  const std::unique_ptr<Transport> local;

 private:
  void watch(const std::stop_token& stop);

  const Topology& topology_;
  const int process_;
  std::mutex mutex_;   // guards the next three members
  int64_t tasks_ = 0;  // number of tasks that are enqueued or running
  int64_t running_ = 0;
  std::vector<std::unique_ptr<Task>> done_;
  std::condition_variable_any begun_;
  std::jthread watcher_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_LEADER_EXCHANGE_H_
