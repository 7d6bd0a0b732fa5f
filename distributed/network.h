// SPDX-License-Identifier: BSD-3-Clause
//
// network.h - messages between the ranks of a group, from memory of the host, over torch's Gloo.
//
// Only Gloo's messages are used, not its collectives: a wait for a message can be ended by abort().
// Threads: any; messages of one peer and tag come from one thread at a time.
#ifndef DISTRIBUTED_NETWORK_H_
#define DISTRIBUTED_NETWORK_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg {

// Makes a Gloo backend: of Python's registering, since torch has no header of it.
using MakeGloo = c10::intrusive_ptr<c10d::Backend> (*)(c10::intrusive_ptr<c10d::Store> store,
                                                       int rank, int size,
                                                       std::chrono::milliseconds timeout);
OPENREG_API void register_gloo(MakeGloo make);
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank,
                                            int size, std::chrono::milliseconds timeout);

class Network {
 public:
  // `data` is contiguous and on the CPU, and may be empty.
  struct Message {
    int peer;
    int tag;
    at::Tensor data;
    int* source = nullptr;  // of a message from any rank (occlAnyRank): who has sent it
  };

  Network(c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout)
      : timeout_(timeout.count()), gloo_(std::move(gloo)) {}

  // Returns when all have been sent and received. Throws if a peer has ended or is late, after
  // abort(), and where a message has another type or size than its receiver expects.
  void transfer(const std::vector<Message>& sends, const std::vector<Message>& receives);
  // The same for messages whose sizes both sides know to be equal.
  void transfer_agreed(const std::vector<Message>& sends, const std::vector<Message>& receives);

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout.count(); }
  // Ends all waits, and closes the connections, which the other ranks notice.
  void abort();

 private:
  // A message on its way, and whose it is.
  struct Wait {
    c10::intrusive_ptr<c10d::Work> work;
    int peer;
  };
  Wait send(int peer, int tag, const at::Tensor& data);
  Wait receive(int peer, int tag, const at::Tensor& data);
  void finish(const Wait& wait);
  // Runs all, and throws what the first one has thrown: the others are ended then.
  void finish_all(const std::vector<std::function<void()>>& steps);
  void receive_checked(const Message& message, const Wait& header, const at::Tensor& words);
  c10::intrusive_ptr<c10d::Backend> gloo();

  std::atomic<int64_t> timeout_;  // milliseconds
  std::atomic<uint32_t> sent_{0};
  std::mutex mutex_;                        // of the next two
  c10::intrusive_ptr<c10d::Backend> gloo_;  // null after abort(): nothing may begin any more
  std::set<c10d::Work*> waiting_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_NETWORK_H_
