// SPDX-License-Identifier: BSD-3-Clause
//
// process.h - the state of the device in this process, which every function of the API checks
// first.
//
// All of it is in one word, `mode`: whether the device is set up, this is the child of a fork, the
// device's threads have ended, and what else makes a call take its slow path. lifecycle.cc changes
// the state: at the first use, in the child of a fork and at exit. Threads: any.
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
  kCapturing = 32,  // some stream is captured (capture.h)
  kStopped = 64,  // after kShutdown: the device's threads have ended, and what is queued is dropped
  kTracing = 128  // calls and work are recorded (activity.h)
};
extern constinit std::atomic<uint32_t> mode;

// The threads of the device watch this while they wait.
inline bool Stopping() { return (mode.load(std::memory_order_seq_cst) & kShutdown) != 0; }

// Nothing that is still queued will run.
inline bool Stopped() { return (mode.load(std::memory_order_seq_cst) & kStopped) != 0; }

// The device is set up: the results of the setup may be read.
inline bool IsReady() { return (mode.load(std::memory_order_acquire) & kReady) != 0; }

// For free, trim and destroy: true in the child of a fork, where they do nothing and succeed.
inline bool InForkedChild() { return (mode.load(std::memory_order_acquire) & kForked) != 0; }

// The slow path of the functions below; fails with the reason.
[[gnu::cold, gnu::noinline]] orError_t Refuse(const char* function, bool only_reads);

// For a function that allocates, enqueues or waits: orSuccess if it may go on. Sets up the device.
inline orError_t EnterDevice(const char* function) {
  const uint32_t now = mode.load(std::memory_order_acquire) & (kReady | kForked | kShutdown);
  if (now == kReady && thread_state.running == nullptr) [[likely]] {
    return orSuccess;
  }
  return Refuse(function, /*only_reads=*/false);
}

// For a function that only queries: also inside kernels and after the shutdown.
inline orError_t EnterQuery(const char* function) {
  if ((mode.load(std::memory_order_acquire) & (kReady | kForked)) == kReady) [[likely]] {
    return orSuccess;
  }
  return Refuse(function, /*only_reads=*/true);
}

// For free, trim and destroy: orSuccess unless a kernel calls. (Releasing a graph may.)
orError_t EnterRelease(const char* function);

// Sets up the device if that has not happened. Called by the functions above; registered by
// lifecycle.cc, which depends on everything that is set up, when the library is loaded.
using Initializer = orError_t (*)();
void SetInitializer(Initializer initializer);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_PROCESS_H_
