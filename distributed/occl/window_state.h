// SPDX-License-Identifier: BSD-3-Clause
//
// window_state.h - the implementation of a window: the kernel addresses of all ranks' memory, and
// the mechanism by which operations wait for each other. Signals are words in this memory. A waiter
// sleeps on a futex that is in the same rank's memory as the words.
//
// The handle and the enqueued operations share the ownership of a window. Threads of kernels use
// it; any thread may call the functions that only read.
#ifndef DISTRIBUTED_OCCL_WINDOW_STATE_H_
#define DISTRIBUTED_OCCL_WINDOW_STATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "distributed/occl/error.h"
#include "distributed/occl/segment.h"
#include "distributed/occl/window.h"

namespace openreg::occl::window {

using Clock = std::chrono::steady_clock;

// The arguments of a collective. They must be equal on all ranks, which CheckedBarrier() verifies.
struct Request {
  enum class Kind : uint32_t { kNone, kOneShot, kTwoShot, kReduceScatter, kAllToAll };
  Kind kind = Kind::kNone;
  occlDataType_t type = occlByte;
  occlRedOp_t op = occlSum;
  uint64_t offset = 0;
  uint64_t count = 0;
  uint64_t rows = 1;
  bool operator==(const Request&) const = default;
};

std::string Describe(const Request& request);

// The deadline of an operation, and the requested timeout, from which the deadline was computed.
struct Limit {
  Clock::time_point end;
  std::chrono::milliseconds asked;
};

// Makes all current and later waits fail. Called when this process exits.
void EndWaits();

// The part of a window that each rank shares with the others.
struct State;

class Window {
 public:
  Window(int ranks, int rank, const occlWindowMember* members, const occlWindowConfig_t& config);

  // Stores the kernel addresses of the memory of rank `peer`. Fails if kernels cannot use an
  // address, or if the signal pad or the state is null or not aligned to 64 bytes.
  Status SetMember(int peer, const occlWindowMember& given);

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  unsigned char* buffer(int peer) const { return members_[static_cast<size_t>(peer)].buffer; }
  // Return an error if there is no such rank or channel.
  Status CheckPeer(int peer) const;
  Status CheckChannel(int channel) const;

  // Closes the window, so that later calls to Run() fail. If an operation is running, returns false
  // without closing the window.
  bool Close() {
    int none = 0;
    return running_.compare_exchange_strong(none, kClosed) || none == kClosed;
  }

  // Runs an operation. Called by a kernel. Fails if the window is closed or an earlier operation
  // has failed. If this operation fails, all later operations on the window fail.
  Status Run(const std::function<Status(Window&)>& operation);

  // -------------------------------------------------------------- called within an operation only

  // Returns the limit of an operation that starts now. A timeout of 0 means the window's timeout.
  Limit Start(int64_t timeout_ms) const;
  // Sends a signal to `peer`. Before that, waits until `peer` has consumed the last signal on the
  // channel.
  Status Put(int peer, int channel, const Limit& limit);
  // Waits for a signal from `peer` on the channel and consumes it.
  Status Take(int peer, int channel, const Limit& limit);
  // Exchanges signals with all ranks.
  Status Barrier(int channel, const Limit& limit);
  // Waits like Barrier() on channel 0, then fails if the ranks' requests differ.
  Status CheckedBarrier(const Request& request, const Limit& limit);

 private:
  static constexpr int kClosed = -1;

  struct Member {
    orIpcFileHandle process;
    unsigned char* buffer;
    uint32_t* pad;
    State* state;
  };

  Member& member(int peer) { return members_[static_cast<size_t>(peer)]; }
  std::atomic_ref<uint32_t> Word(int owner, int source, int channel) {
    return std::atomic_ref<uint32_t>(
        member(owner).pad[static_cast<size_t>(channel) * static_cast<size_t>(ranks_) +
                          static_cast<size_t>(source)]);
  }
  void Notify(int peer);
  // Waits until `done`, which reads the signal pad of rank `owner`, returns true. Fails at the
  // deadline, if the window has failed, if this process is exiting, or if the process of rank
  // `missed` has exited. For the error message, `what` returns a description of the missing event.
  Status WaitUntil(int owner, int missed, const Limit& limit, const std::function<bool()>& done,
                   const std::function<std::string()>& what);
  Status Ended();
  void End(const Status& status);

  const int ranks_;
  const int rank_;
  const size_t buffer_bytes_;
  const size_t channels_;
  const std::chrono::milliseconds timeout_;
  std::vector<Member> members_;
  std::atomic<int> running_{0};
};

}  // namespace openreg::occl::window

#endif  // DISTRIBUTED_OCCL_WINDOW_STATE_H_
