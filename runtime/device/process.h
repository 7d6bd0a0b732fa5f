// SPDX-License-Identifier: BSD-3-Clause
//
// process.h - the life of the device in a process: first use, fork, exit.
//
// Loading the library registers the handlers of forks and does nothing else. The first call that
// needs a device sets everything up, and a fork in the meantime waits for it; in the child of a
// fork the device is gone, unless nothing had used it; at exit its threads end. All of that is in
// one word, `mode`, which the functions of the API look at first.
#ifndef RUNTIME_DEVICE_PROCESS_H_
#define RUNTIME_DEVICE_PROCESS_H_

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"
#include "runtime/device/thread.h"

namespace openreg::device {

enum : uint32_t {
  kReady = 1,       // set up
  kForked = 2,      // this is the child of a fork
  kShutdown = 4,    // the device's threads end or have ended
  kBlocking = 8,    // launches wait for their kernel
  kInjecting = 16,  // faults are injected (fault_injection.h)
  kCapturing = 32,  // some stream is captured (graph.h)
  kStopped = 64  // after kShutdown: the device's threads have ended, and what is queued is dropped
};
extern constinit std::atomic<uint32_t> mode;

// The threads of the device watch this while they wait.
inline bool Stopping() { return (mode.load(std::memory_order_seq_cst) & kShutdown) != 0; }

// Nothing that is still queued will run.
inline bool Stopped() { return (mode.load(std::memory_order_seq_cst) & kStopped) != 0; }

// The device is set up: what that wrote may be read.
inline bool IsReady() { return (mode.load(std::memory_order_acquire) & kReady) != 0; }

// The slow way of the functions below; fails with the reason.
[[gnu::cold, gnu::noinline]] orError_t Refuse(const char* function, bool only_reads);

// For a function that allocates, enqueues or waits: orSuccess if it may go on. Sets up the device.
inline orError_t EnterDevice(const char* function) {
  const uint32_t now = mode.load(std::memory_order_acquire) & (kReady | kForked | kShutdown);
  if (now == kReady && thread_state.running == nullptr) [[likely]] {
    return orSuccess;
  }
  return Refuse(function, /*only_reads=*/false);
}

// For a function that only asks: also inside of kernels and after the shutdown.
inline orError_t EnterQuery(const char* function) {
  if ((mode.load(std::memory_order_acquire) & (kReady | kForked)) == kReady) [[likely]] {
    return orSuccess;
  }
  return Refuse(function, /*only_reads=*/true);
}

// For free, trim and destroy: true in the child of a fork, where they do nothing and succeed.
inline bool LeftBehind() { return (mode.load(std::memory_order_acquire) & kForked) != 0; }

// For free, trim and destroy: orSuccess unless a kernel calls. (What a graph releases may.)
orError_t EnterRelease(const char* function);

// Sets up the device if that has not happened. Called by the functions above.
orError_t Initialize();

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_PROCESS_H_
