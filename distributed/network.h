// SPDX-License-Identifier: BSD-3-Clause
//
// network.h - messages in host memory between a group's ranks, over torch's Gloo.
//
// This class uses only Gloo's messages, not its collectives, because abort() can end a wait for a
// message. Any thread may call it, but only one thread at a time may use a given peer and tag.
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

// A function that creates a Gloo backend. Python registers it, because torch has no header for
// Gloo.
using MakeGloo = c10::intrusive_ptr<c10d::Backend> (*)(c10::intrusive_ptr<c10d::Store> store,
                                                       int rank, int size,
                                                       std::chrono::milliseconds timeout);
OPENREG_API void register_gloo(MakeGloo make);
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank,
                                            int size, std::chrono::milliseconds timeout);

class Network {
 public:
  // A message to or from a rank. `data` must be contiguous and on the CPU, and may be empty.
  struct Message {
    int peer;
    int tag;
    at::Tensor data;
    int* source = nullptr;  // stores the sender's rank for a message from any rank (occlAnyRank)
  };

  Network(c10::intrusive_ptr<c10d::Backend> gloo, std::chrono::milliseconds timeout)
      : timeout_(timeout.count()), gloo_(std::move(gloo)) {}

  // Returns when all messages have been sent and received. Throws if a peer has exited or does not
  // respond in time, if abort() was called, or if a message's type or size differs from what its
  // receiver expects.
  void transfer(const std::vector<Message>& sends, const std::vector<Message>& receives);
  // Like transfer(), but does not check types and sizes. The caller must ensure that they are equal
  // on both sides.
  void transfer_agreed(const std::vector<Message>& sends, const std::vector<Message>& receives);

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout.count(); }
  // Ends all waits and closes the connections. The waits of the other ranks then fail.
  void abort();

 private:
  // A message in progress and its peer.
  struct Wait {
    c10::intrusive_ptr<c10d::Work> work;
    int peer;
  };
  Wait send(int peer, int tag, const at::Tensor& data);
  Wait receive(int peer, int tag, const at::Tensor& data);
  void finish(const Wait& wait);
  // Runs all steps and throws the first exception. An exception ends the waits of the other steps.
  void finish_all(const std::vector<std::function<void()>>& steps);
  void receive_checked(const Message& message, const Wait& header, const at::Tensor& words);
  c10::intrusive_ptr<c10d::Backend> gloo();

  std::atomic<int64_t> timeout_;  // in milliseconds
  std::atomic<uint32_t> sent_{0};
  std::mutex mutex_;                        // guards the next two members
  c10::intrusive_ptr<c10d::Backend> gloo_;  // null after abort(), when no message may start
  std::set<c10d::Work*> waiting_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_NETWORK_H_
