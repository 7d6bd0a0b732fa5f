// SPDX-License-Identifier: BSD-3-Clause
//
// fixture.h - the common code of the suite's tests: checks of an error and of the thread's last
// error, memory that is freed after each test, and commands that run until the test ends them.
#ifndef RUNTIME_DEVICE_CTS_FIXTURE_H_
#define RUNTIME_DEVICE_CTS_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/cts/driver.h"

namespace openreg::cts {

// Returns the text of an error that a call on this thread has just returned, with a separator
// before it. Returns an empty string if the driver has not stored this error as the thread's last
// error.
inline std::string Detail(orError_t error) {
  return error != orSuccess && orPeekAtLastError() == error
             ? std::string("; detail: ") + orGetLastErrorDetail()
             : "";
}

inline testing::AssertionResult Succeeds(const char* call, orError_t error) {
  if (error == orSuccess) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << call << " returned " << orGetErrorName(error) << Detail(error);
}

inline testing::AssertionResult FailsWith(const char* call, const char*, orError_t error,
                                          orError_t expected) {
  if (error != expected) {
    return testing::AssertionFailure()
           << call << " returned " << orGetErrorName(error) << ", expected "
           << orGetErrorName(expected) << Detail(error);
  }
  if (orPeekAtLastError() != expected) {
    return testing::AssertionFailure()
           << call << " did not store the error as the thread's last error";
  }
  if (std::string(orGetLastErrorDetail()).empty()) {
    return testing::AssertionFailure() << call << " failed without a detail";
  }
  orGetLastError();
  return testing::AssertionSuccess();
}

#define EXPECT_OK(call) EXPECT_PRED_FORMAT1(openreg::cts::Succeeds, call)
#define ASSERT_OK(call) ASSERT_PRED_FORMAT1(openreg::cts::Succeeds, call)
// Checks that the call returns this error, that the error becomes the thread's last error, and that
// it has a detail.
#define EXPECT_FAILS(call, error) EXPECT_PRED_FORMAT2(openreg::cts::FailsWith, call, error)

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

inline void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Queues any function on a stream (requires tier 2).
inline orError_t QueueFunction(orStream_t stream, std::function<void()> function) {
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> run(static_cast<std::function<void()>*>(data));
    (*run)();
  };
  const orError_t error = orLaunchHostFunc(stream, run, owned.get());
  if (error == orSuccess) {
    (void)owned.release();
  }
  return error;
}

// A command that runs until the test opens the gate. The destructor opens the gate, so that a
// failing test does not hang. Copies share the gate.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { Open(); }

  orError_t Queue(orStream_t stream) {
    return QueueFunction(stream, [state = state_] {
      state->entered = true;
      while (!state->open) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  void Open() { state_->open = true; }
  bool AwaitEntered() const {
    return Eventually([this] { return state_->entered.load(); });
  }

 private:
  struct State {
    std::atomic<bool> entered{false};
    std::atomic<bool> open{false};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A fresh device for each test. Tests of tier 1 use this fixture.
class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(orGetDeviceCount(&count_));
    ASSERT_OK(orSetDevice(0));
    orGetLastError();
  }
  void TearDown() override {
    for (int device = 0; device < count_; ++device) {
      EXPECT_OK(orSetDevice(device));
      EXPECT_OK(orDeviceSynchronize());
    }
    for (void* pointer : allocated_) {
      (void)orFree(pointer);  // fails if the test has already freed it
    }
    orGetLastError();
  }

  template <class T>
  T* Allocate(size_t count) {
    void* pointer = nullptr;
    EXPECT_OK(orMalloc(&pointer, count * sizeof(T)));
    allocated_.push_back(pointer);
    return static_cast<T*>(pointer);
  }

  static std::vector<unsigned char> Read(const void* device, size_t size) {
    std::vector<unsigned char> bytes(size);
    EXPECT_OK(orMemcpy(bytes.data(), device, size, orMemcpyDeviceToHost));
    return bytes;
  }
  static uint32_t ReadWord(const uint32_t* device) {
    uint32_t word = 0;
    EXPECT_OK(orMemcpy(&word, device, sizeof(word), orMemcpyDeviceToHost));
    return word;
  }
  // Returns bytes whose values depend on their positions.
  static std::vector<unsigned char> Pattern(size_t size) {
    std::vector<unsigned char> bytes(size);
    for (size_t index = 0; index < size; ++index) {
      bytes[index] = static_cast<unsigned char>((index * 31 + 17) ^ (index >> 8));
    }
    return bytes;
  }

  // Returns a device other than 0 if there is one, otherwise 0.
  int other() const { return count_ - 1; }

  int count_ = 0;

 private:
  std::vector<void*> allocated_;
};

// Tests of tier 2 and above. Launches are asynchronous in every configuration, because a test that
// queues work behind a gate would otherwise wait for the gate.
class Tier2Test : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(orGetLaunchBlocking(&blocking_));
    ASSERT_OK(orSetLaunchBlocking(0));
  }
  void TearDown() override {
    for (int device = 0; device < count_; ++device) {
      EXPECT_OK(orSetDevice(device));
      EXPECT_OK(orDeviceReset());
    }
    EXPECT_OK(orSetLaunchBlocking(blocking_));
  }

  static orStream_t CreateStream() {
    orStream_t stream = nullptr;
    EXPECT_OK(orStreamCreate(&stream));
    return stream;
  }
  static orEvent_t CreateEvent(unsigned flags = orEventDisableTiming) {
    orEvent_t event = nullptr;
    EXPECT_OK(orEventCreateWithFlags(&event, flags));
    return event;
  }

 private:
  int blocking_ = 0;
};

}  // namespace openreg::cts

#endif  // RUNTIME_DEVICE_CTS_FIXTURE_H_
