// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/fault_injection.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "runtime/device/error.h"
#include "runtime/device/injected_fault.h"
#include "runtime/device/process.h"

namespace openreg::device {
namespace {

std::atomic<uint64_t> malloc_countdown{0};
std::atomic<uint64_t> kernel_countdown{0};
std::atomic<uint64_t> kernel_delay{0};

// Decrements the countdown unless it is 0. Returns true only for the call that decrements it from 1
// to 0.
bool CountDown(std::atomic<uint64_t>& countdown) {
  uint64_t left = countdown.load(std::memory_order_relaxed);
  while (left != 0 && !countdown.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left == 1;
}

orError_t Inject(const char* function, std::atomic<uint64_t>& what, uint64_t value) {
  if (const orError_t error = EnterDevice(function); error != orSuccess) {
    return error;
  }
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  what.store(value, std::memory_order_relaxed);
  const bool any = malloc_countdown.load(std::memory_order_relaxed) != 0 ||
                   kernel_countdown.load(std::memory_order_relaxed) != 0 ||
                   kernel_delay.load(std::memory_order_relaxed) != 0;
  if (any) {
    mode.fetch_or(kInjecting, std::memory_order_acq_rel);
  } else {
    mode.fetch_and(~static_cast<uint32_t>(kInjecting), std::memory_order_acq_rel);
  }
  return orSuccess;
}

}  // namespace

bool MallocFaultDue() { return CountDown(malloc_countdown); }
bool KernelFaultDue() { return CountDown(kernel_countdown); }

void DelayKernel() {
  if (const uint64_t delay = kernel_delay.load(std::memory_order_relaxed); delay != 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
  }
}

extern "C" {

OPENREG_API orError_t orInjectMallocFailure(uint64_t nth) {
  return Inject("orInjectMallocFailure", malloc_countdown, nth);
}

OPENREG_API orError_t orInjectKernelFailure(uint64_t nth) {
  return Inject("orInjectKernelFailure", kernel_countdown, nth);
}

OPENREG_API orError_t orInjectKernelDelay(uint64_t nanoseconds) {
  return Inject("orInjectKernelDelay", kernel_delay, nanoseconds);
}

}  // extern "C"
}  // namespace openreg::device
