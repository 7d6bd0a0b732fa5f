// SPDX-License-Identifier: BSD-3-Clause
//
// device_fixture.h - the common code of the device tests: a fresh device for each test, checks of
// an error and its text, and kernels that run until the test ends them.
#ifndef RUNTIME_DEVICE_DEVICE_FIXTURE_H_
#define RUNTIME_DEVICE_DEVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/fault_injection.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::device {

inline testing::AssertionResult Succeeds(const char* call, orError_t error) {
  if (error == orSuccess) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << call << " returned " << orGetErrorName(error) << ": " << orGetLastErrorDetail();
}

inline testing::AssertionResult FailsWith(const char* call, const char*, const char*,
                                          orError_t error, orError_t expected,
                                          const std::string& text) {
  const std::string detail = orGetLastErrorDetail();
  if (error != expected) {
    return testing::AssertionFailure()
           << call << " returned " << orGetErrorName(error) << ", expected "
           << orGetErrorName(expected) << "; detail: " << detail;
  }
  if (orPeekAtLastError() != expected) {
    return testing::AssertionFailure() << call << " is not the last error";
  }
  if (detail.rfind("openreg: ", 0) != 0 || detail.find(text) == std::string::npos) {
    return testing::AssertionFailure()
           << "the detail of " << call << " is \"" << detail << "\", without \"" << text << "\"";
  }
  orGetLastError();
  return testing::AssertionSuccess();
}

#define EXPECT_OK(call) EXPECT_PRED_FORMAT1(openreg::device::Succeeds, call)
#define ASSERT_OK(call) ASSERT_PRED_FORMAT1(openreg::device::Succeeds, call)
// Expects the call to fail with this error, and the detail of the error to contain this text.
#define EXPECT_FAILS(call, error, text) \
  EXPECT_PRED_FORMAT3(openreg::device::FailsWith, call, error, text)

// Waits until `done` returns true. Returns false after a timeout that no healthy machine reaches.
template <class Done>
bool Eventually(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// A kernel that runs until the test opens the gate. The destructor opens the gate, too, so that a
// failing test does not hang. The gate must outlive its kernel, so synchronize before the gate is
// destroyed.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  orError_t Launch(orStream_t stream, uint32_t flags = 0) {
    Gate* self = this;
    const orLaunchAttributes attributes{"gate", flags, 0};
    return orLaunchKernel(stream, Run, &self, sizeof(self), &attributes);
  }
  void Open() { open_.store(true); }
  bool entered() const { return entered_.load(); }
  bool AwaitEntered() const {
    return Eventually([this] { return entered(); });
  }

 private:
  static orError_t Run(void* arguments) {
    Gate* gate = *static_cast<Gate**>(arguments);
    gate->entered_.store(true);
    while (!gate->open_.load()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return orSuccess;
  }
  std::atomic<bool> entered_{false};
  std::atomic<bool> open_{false};
};

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(orGetDeviceCount(&count_));
    ASSERT_OK(orSetDevice(0));
    ASSERT_OK(orGetLaunchBlocking(&blocking_));
    orGetLastError();
  }

  void TearDown() override {
    EXPECT_OK(orInjectMallocFailure(0));
    EXPECT_OK(orInjectKernelFailure(0));
    EXPECT_OK(orInjectKernelDelay(0));
    EXPECT_OK(orSetLaunchBlocking(blocking_));
    for (int device = 0; device < count_; ++device) {
      EXPECT_OK(orSetDevice(device));
      EXPECT_OK(orDeviceReset());
    }
  }

  // Makes launches asynchronous in every configuration. A test needs this if it queues work behind
  // a kernel and ends the kernel later. With launch blocking, the launch of that kernel would never
  // return.
  void QueueLaunches() { ASSERT_OK(orSetLaunchBlocking(0)); }

  // Allocates `count` elements. Returns the device pointer and sets `*kernel_view` to the address
  // that kernels must use.
  template <class T>
  T* Allocate(size_t count, T** kernel_view = nullptr) {
    void* pointer = nullptr;
    EXPECT_OK(orMalloc(&pointer, count * sizeof(T)));
    if (kernel_view != nullptr) {
      void* view = nullptr;
      EXPECT_OK(orGetKernelPointer(&view, pointer));
      *kernel_view = static_cast<T*>(view);
    }
    return static_cast<T*>(pointer);
  }

  orStream_t CreateStream() {
    orStream_t stream = nullptr;
    EXPECT_OK(orStreamCreate(&stream));
    return stream;
  }

  // Returns a device other than 0 if there is one, otherwise 0.
  int other() const { return count_ - 1; }

  int count_ = 0;
  int blocking_ = 0;
};

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_DEVICE_FIXTURE_H_
