// SPDX-License-Identifier: BSD-3-Clause
//
// kernel_error.h - passes a kernel's error to the call that reports it.
//
// An ErrorSink stores only the first error. Each stream has one sink, each device has one for
// errors of destroyed streams, and a blocking launch provides its own. Any thread may call these
// functions.
#ifndef RUNTIME_DEVICE_KERNEL_ERROR_H_
#define RUNTIME_DEVICE_KERNEL_ERROR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::device {

class KernelError {
 public:
  KernelError() = default;
  KernelError(const KernelError&) = delete;
  KernelError& operator=(const KernelError&) = delete;
  ~KernelError() {
    if (payload != nullptr && drop != nullptr) {
      drop(payload);
    }
  }

  void* TakePayload() { return std::exchange(payload, nullptr); }
  const char* kernel_name() const { return name ? name : "(unnamed)"; }

  orError_t code = orSuccess;
  std::string message;
  const char* name = nullptr;  // the operator's name; static storage
  void* payload = nullptr;
  void (*drop)(void*) = nullptr;
  int device = 0;
  uint32_t stream = 0;
  uint64_t after = 0;     // number of commands that the stream had completed before the error
  uint64_t sequence = 0;  // orders the failures in the process
};

class ErrorSink {
 public:
  constexpr ErrorSink() = default;
  ErrorSink(const ErrorSink&) = delete;
  ErrorSink& operator=(const ErrorSink&) = delete;
  ~ErrorSink() { delete first_.load(std::memory_order_acquire); }

  // Stores the error if the sink is empty; otherwise drops it.
  void Keep(std::unique_ptr<KernelError> error) {
    KernelError* none = nullptr;
    if (first_.compare_exchange_strong(none, error.get(), std::memory_order_acq_rel)) {
      (void)error.release();
    }
  }

  bool empty() const { return first_.load(std::memory_order_relaxed) == nullptr; }

  // Returns the error and empties the sink, or returns null if the sink is empty.
  std::unique_ptr<KernelError> Take() {
    return std::unique_ptr<KernelError>(first_.exchange(nullptr, std::memory_order_acq_rel));
  }

 private:
  std::atomic<KernelError*> first_{nullptr};
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_KERNEL_ERROR_H_
