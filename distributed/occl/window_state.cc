// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/window_state.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "distributed/occl/data_type.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::occl::window {
namespace {

constexpr auto kDefaultTimeout = std::chrono::minutes(30);
// The interval between checks for changes without notification: a process has exited, or the
// program's own kernels have written words to signal pads.
constexpr auto kPollInterval = std::chrono::milliseconds(5);

// True when this process is exiting. Waits in kernels must then fail.
std::atomic<bool> ending{false};

}  // namespace

// The window's data in each rank's memory. A change to that rank's signal pad notifies `changes`.
struct State {
  EventCount changes;
  Request request;
  Failure failure;  // a rank that fails writes the failure to all ranks
};
static_assert(sizeof(State) <= OCCL_WINDOW_STATE_BYTES);
static_assert(sizeof(orIpcFileHandle) <= sizeof(occlProcess));

void EndWaits() { ending = true; }

std::string Describe(const Request& request) {
  static constexpr const char* kNames[] = {"nothing", "one-shot all-reduce", "two-shot all-reduce",
                                           "reduce-scatter", "all-to-all"};
  const uint64_t kind = static_cast<uint64_t>(request.kind);
  std::string text = kind < std::size(kNames) ? kNames[kind] : "unknown operation";
  if (request.kind != Request::Kind::kNone) {
    text += std::string(" of ") + TypeName(request.type) + "[" +
            (request.rows == 1 ? "" : std::to_string(request.rows) + ", ") +
            std::to_string(request.count) + "] at byte " + std::to_string(request.offset);
  }
  return text;
}

Window::Window(int ranks, int rank, const occlWindowMember* members,
               const occlWindowConfig_t& config)
    : ranks_(ranks),
      rank_(rank),
      buffer_bytes_(config.buffer_bytes),
      channels_(config.signal_pad_bytes / sizeof(uint32_t) / static_cast<size_t>(ranks)),
      timeout_(config.timeout_ms > 0 ? std::chrono::milliseconds(config.timeout_ms)
                                     : kDefaultTimeout),
      members_(static_cast<size_t>(ranks)) {
  for (int peer = 0; peer < ranks; ++peer) {
    std::memcpy(&members_[static_cast<size_t>(peer)].process, members[peer].process.internal,
                sizeof(orIpcFileHandle));
  }
}

Status Window::SetMember(int peer, const occlWindowMember& given) {
  Member& to = member(peer);
  void* addresses[3] = {given.buffer, given.signal_pad, given.state};
  for (void*& address : addresses) {
    if (const orError_t error = orCheckKernelPointer(address); error != orSuccess) {
      return DeviceStatus(error);
    }
    if (const orError_t error = orGetKernelPointer(&address, address); error != orSuccess) {
      return DeviceStatus(error);
    }
  }
  for (int aligned = 1; aligned < 3; ++aligned) {
    if (addresses[aligned] == nullptr ||
        reinterpret_cast<uintptr_t>(addresses[aligned]) % 64 != 0) {
      return Error(occlInvalidArgument, "the signal pad and the state of rank " +
                                            std::to_string(peer) +
                                            " must be aligned to 64 bytes and not null");
    }
  }
  to.buffer = static_cast<unsigned char*>(addresses[0]);
  to.pad = static_cast<uint32_t*>(addresses[1]);
  to.state = static_cast<State*>(addresses[2]);
  return {};
}

Status Window::CheckPeer(int peer) const {
  return peer >= 0 && peer < ranks_
             ? Status()
             : Error(occlInvalidArgument, "there is no rank " + std::to_string(peer) + ": " +
                                              std::to_string(ranks_) +
                                              " ranks share the symmetric memory");
}

Status Window::CheckChannel(int channel) const {
  return channel >= 0 && static_cast<size_t>(channel) < channels_
             ? Status()
             : Error(occlInvalidArgument, "there is no channel " + std::to_string(channel) + ": " +
                                              "the signal pad has room for " +
                                              std::to_string(channels_) +
                                              " channels (set_signal_pad_size)");
}

Status Window::Run(const std::function<Status(Window&)>& operation) {
  int running = running_.load();
  do {
    if (running == kClosed) {
      return Error(occlInvalidUsage,
                   "the symmetric memory was freed: keep its tensor or its handle as long as a "
                   "graph that uses it is replayed");
    }
  } while (!running_.compare_exchange_weak(running, running + 1));
  Status status = Ended();
  if (status.ok()) {
    status = operation(*this);
    if (!status.ok()) {
      End(status);
    }
  }
  running_.fetch_sub(1);
  return status;
}

Limit Window::Start(int64_t timeout_ms) const {
  const auto asked = timeout_ms > 0 ? std::chrono::milliseconds(timeout_ms) : timeout_;
  return {Clock::now() + asked, asked};
}

void Window::Notify(int peer) { member(peer).state->changes.Notify(); }

Status Window::WaitUntil(int owner, int missed, const Limit& limit,
                         const std::function<bool()>& done,
                         const std::function<std::string()>& what) {
  if (Spin(done)) {
    return {};
  }
  State& state = *member(owner).state;
  bool changed = true;
  for (;;) {
    const uint32_t epoch = state.changes.epoch.load(std::memory_order_seq_cst);
    if (done()) {
      return {};
    }
    if (Status ended = Ended(); !ended.ok()) {
      return ended;
    }
    if (ending.load()) {
      return Error(occlAborted,
                   "the process of rank " + std::to_string(rank_) + " is exiting: " + what());
    }
    int there = 1;
    if (!changed && orIpcFileIsThere(&there, &member(missed).process) == orSuccess && there == 0) {
      return done() ? Status()  // the peer finished before it exited
                    : Error(occlRemoteError, "the process of rank " + std::to_string(missed) +
                                                 " has exited: " + what());
    }
    const Clock::time_point now = Clock::now();
    if (now >= limit.end) {
      return Error(occlTimeout, what() + " within " + std::to_string(limit.asked.count()) + " ms");
    }
    changed = state.changes.Wait(
        epoch, std::min<std::chrono::nanoseconds>(kPollInterval, limit.end - now));
  }
}

Status Window::Put(int peer, int channel, const Limit& limit) {
  const std::atomic_ref<uint32_t> word = Word(peer, rank_, channel);
  const auto set = [&] {
    uint32_t none = 0;
    return word.compare_exchange_strong(none, 1, std::memory_order_seq_cst);
  };
  const Status status = WaitUntil(peer, peer, limit, set, [&] {
    return "rank " + std::to_string(peer) + " did not consume the last signal of rank " +
           std::to_string(rank_) + " on channel " + std::to_string(channel);
  });
  if (status.ok()) {
    Notify(peer);
  }
  return status;
}

Status Window::Take(int peer, int channel, const Limit& limit) {
  const std::atomic_ref<uint32_t> word = Word(rank_, peer, channel);
  const auto take = [&] {
    uint32_t set = 1;
    return word.compare_exchange_strong(set, 0, std::memory_order_seq_cst);
  };
  const Status status = WaitUntil(rank_, peer, limit, take, [&] {
    return "rank " + std::to_string(rank_) + " received no signal from rank " +
           std::to_string(peer) + " on channel " + std::to_string(channel);
  });
  if (status.ok()) {
    Notify(rank_);  // the peer may be waiting to send a second signal
  }
  return status;
}

Status Window::Barrier(int channel, const Limit& limit) {
  for (int next = 1; next < ranks_; ++next) {
    if (Status status = Put((rank_ + next) % ranks_, channel, limit); !status.ok()) {
      return status;
    }
  }
  for (int next = 1; next < ranks_; ++next) {
    if (Status status = Take((rank_ + next) % ranks_, channel, limit); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status Window::CheckedBarrier(const Request& request, const Limit& limit) {
  member(rank_).state->request = request;
  if (Status status = Barrier(0, limit); !status.ok()) {
    return status;
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    const Request& theirs = member(peer).state->request;
    if (theirs != request) {
      const int first = std::min(rank_, peer), second = std::max(rank_, peer);
      return Error(occlInvalidUsage, "ranks called different operations: rank " +
                                         std::to_string(first) + " called " +
                                         Describe(first == rank_ ? request : theirs) +
                                         ", but rank " + std::to_string(second) + " called " +
                                         Describe(second == rank_ ? request : theirs));
    }
  }
  return {};
}

Status Window::Ended() {
  const Failure& failure = member(rank_).state->failure;
  if (failure.state.load(std::memory_order_acquire) != Failure::kWritten) {
    return {};
  }
  const std::string who =
      failure.rank == rank_ ? "" : "rank " + std::to_string(failure.rank) + " reported: ";
  return Error(failure.result, who + failure.text);
}

void Window::End(const Status& status) {
  for (int peer = 0; peer < ranks_; ++peer) {
    Failure& failure = member(peer).state->failure;
    uint32_t none = Failure::kNone;
    if (failure.state.compare_exchange_strong(none, Failure::kBeingWritten)) {
      failure.rank = rank_;
      failure.result = status.result;
      std::snprintf(failure.text, sizeof(failure.text), "%s", status.text.c_str());
      failure.state.store(Failure::kWritten, std::memory_order_release);
      Notify(peer);
    }
  }
}

}  // namespace openreg::occl::window
