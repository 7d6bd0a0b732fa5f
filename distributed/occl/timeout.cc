// SPDX-License-Identifier: BSD-3-Clause
//
// How a rank waits for other ranks: until they respond, their processes end, the communicator is
// aborted, or the timeout expires.
#include <atomic>
#include <chrono>

#include "distributed/occl/communicator.h"

namespace openreg::occl {
namespace {

// The interval between checks whether another rank is alive.
constexpr auto kPollInterval = std::chrono::milliseconds(20);

// True when this process is exiting. Kernels must then stop waiting.
std::atomic<bool> exiting{false};
struct ExitWatcher {
  ~ExitWatcher() { exiting = true; }
};

}  // namespace

void Communicator::WatchExit() {
  // Created after the device's exit handler, so destroyed before that handler runs.
  static const ExitWatcher watcher;
}

Clock::time_point Communicator::Deadline() const {
  return Clock::now() + std::chrono::milliseconds(timeout_.load(std::memory_order_relaxed));
}

Status Communicator::WaitUntil(const std::function<bool()>& done, const std::function<int()>& who,
                               Clock::time_point deadline,
                               const std::function<std::string()>& what) {
  if (Spin(done)) {
    return {};
  }
  Segment& shared = *segment();
  for (;;) {
    const uint32_t epoch = shared.changes.epoch.load(std::memory_order_seq_cst);
    if (done()) {
      return {};
    }
    if (const Status ended = Ended(); !ended.ok()) {
      return ended;
    }
    if (exiting.load()) {
      return Error(occlAborted, "this process is exiting");
    }
    if (const int missed = who(); missed >= 0) {
      const RankState& state = shared.states[missed];
      int there = 0;
      // `done` is checked again below, because the rank may have arrived at the barrier before it
      // left.
      const bool left = state.presence.load() == RankState::kLeft;
      const bool gone = !left && orIpcFileIsThere(&there, &state.device) == orSuccess && there == 0;
      if ((left || gone) && !done()) {
        return Error(occlRemoteError, (left ? Name(missed) + " has destroyed its communicator"
                                            : "the process of " + Name(missed) + " has exited") +
                                          ": " + what());
      }
    }
    if (Clock::now() >= deadline) {
      return Error(
          occlTimeout,
          what() + " within " + std::to_string(timeout_.load(std::memory_order_relaxed)) + " ms");
    }
    (void)shared.changes.Wait(epoch, kPollInterval);
  }
}

}  // namespace openreg::occl
