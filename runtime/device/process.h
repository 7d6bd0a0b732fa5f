// SPDX-License-Identifier: BSD-3-Clause
//
// process.h - the state of the device in this process. Every API function checks it first.
//
// A single word, `mode`, contains the whole state: whether the device is set up, whether this is a
// forked child, whether the device's threads have ended, and every other condition that makes a
// call use its slow path. lifecycle.cc changes the state at the first use, in a forked child, and
// at exit. Any thread may call these functions.
#ifndef RUNTIME_DEVICE_PROCESS_H_
#define RUNTIME_DEVICE_PROCESS_H_

#include <atomic>
#include <cstdint>

#include "runtime/device/openreg.h"
#include "runtime/device/thread.h"

namespace openreg::device {

enum : uint32_t {
  kReady = 1,       // the device is set up
  kForked = 2,      // this process is a forked child
  kShutdown = 4,    // the device's threads are ending or have ended
  kBlocking = 8,    // launches wait for their kernel
  kInjecting = 16,  // faults are being injected (fault_injection.h)
  kCapturing = 32,  // some stream is being captured (capture.h)
  kStopped = 64,    // the device's threads have ended, and queued work is dropped
  kTracing = 128    // calls and work are being recorded (activity.h)
};
extern constinit std::atomic<uint32_t> mode;

// Returns whether the process has begun to shut down the device. The device's threads check this
// while they wait.
inline bool Stopping() { return (mode.load(std::memory_order_seq_cst) & kShutdown) != 0; }

// Returns whether the device's threads have ended. If so, queued commands will never run.
inline bool Stopped() { return (mode.load(std::memory_order_seq_cst) & kStopped) != 0; }

// Returns whether the device is set up. If so, the caller may read data that the setup has written.
inline bool IsReady() { return (mode.load(std::memory_order_acquire) & kReady) != 0; }

// Returns whether this process is a forked child. There, functions that free, trim or destroy do
// nothing and return orSuccess.
inline bool InForkedChild() { return (mode.load(std::memory_order_acquire) & kForked) != 0; }

// Implements the slow path of the functions below. If it refuses the call, the error contains the
// reason.
[[gnu::cold, gnu::noinline]] orError_t Refuse(const char* function, bool only_reads);

// Called by each function that allocates, enqueues or waits. Sets up the device if necessary, and
// returns orSuccess if the function may proceed.
inline orError_t EnterDevice(const char* function) {
  const uint32_t now = mode.load(std::memory_order_acquire) & (kReady | kForked | kShutdown);
  if (now == kReady && thread_state.running == nullptr) [[likely]] {
    return orSuccess;
  }
  return Refuse(function, /*only_reads=*/false);
}

// Called by each function that only queries. Unlike EnterDevice, this also succeeds inside kernels
// and after the shutdown.
inline orError_t EnterQuery(const char* function) {
  if ((mode.load(std::memory_order_acquire) & (kReady | kForked)) == kReady) [[likely]] {
    return orSuccess;
  }
  return Refuse(function, /*only_reads=*/true);
}

// Called by functions that free, trim or destroy. Returns orSuccess unless a kernel calls the
// function. (The release function of a graph may call such functions.)
orError_t EnterRelease(const char* function);

// A function that sets up the device if necessary. The functions above call it. lifecycle.cc
// registers it when the library is loaded, because only lifecycle.cc depends on everything that
// must be set up.
using Initializer = orError_t (*)();
void SetInitializer(Initializer initializer);

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_PROCESS_H_
