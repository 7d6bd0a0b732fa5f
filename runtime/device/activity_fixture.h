// SPDX-License-Identifier: BSD-3-Clause
//
// activity_fixture.h - a profiler for the tests of activity records, and the fixture of these
// tests.
#ifndef RUNTIME_DEVICE_ACTIVITY_FIXTURE_H_
#define RUNTIME_DEVICE_ACTIVITY_FIXTURE_H_

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/device_fixture.h"

namespace openreg::device {

// A profiler that stores all records that it receives.
class Profiler {
 public:
  static Profiler& Get() {
    static Profiler& profiler = *new Profiler;
    return profiler;
  }

  // Starts tracing. `size` is the size of each buffer. If it is 0, the profiler provides no
  // buffers.
  void Start(size_t size = 4096) {
    buffer_size_ = size;
    completed_ = 0;
    records_.clear();
    ASSERT_OK(orActivityGetCounts(&recorded_before_, &dropped_before_));
    ASSERT_OK(orActivityRegisterCallbacks(&Request, &Complete));
    ASSERT_OK(orActivityEnableTracing());
  }

  // Stops tracing and returns the records since Start, ordered by end time.
  std::vector<orActivity> Stop() {
    EXPECT_OK(orActivityDisableTracing());
    EXPECT_OK(orActivityFlushAll());
    uint64_t recorded = 0, dropped = 0;
    EXPECT_OK(orActivityGetCounts(&recorded, &dropped));
    dropped_ = dropped - dropped_before_;
    EXPECT_OK(orActivityRegisterCallbacks(nullptr, nullptr));
    EXPECT_EQ(buffers_, 0) << "buffers were not returned";
    EXPECT_EQ(records_.size(), recorded - recorded_before_);
    std::sort(records_.begin(), records_.end(),
              [](const orActivity& a, const orActivity& b) { return a.end_ns < b.end_ns; });
    return records_;
  }

  uint64_t dropped() const { return dropped_; }
  int completed() const { return completed_; }

 private:
  static void Request(void** buffer, size_t* size) {
    Profiler& self = Get();
    if (self.buffer_size_ != 0) {
      *buffer = std::make_unique<uint64_t[]>(self.buffer_size_ / sizeof(uint64_t)).release();
      *size = self.buffer_size_;
      ++self.buffers_;
    }
  }

  static void Complete(void* buffer, size_t used) {
    Profiler& self = Get();
    const std::unique_ptr<uint64_t[]> owned(static_cast<uint64_t*>(buffer));
    const auto* records = static_cast<const orActivity*>(buffer);
    EXPECT_EQ(used % sizeof(orActivity), 0U);
    const std::lock_guard lock(self.mutex_);
    const size_t count = used / sizeof(orActivity);
    self.records_.insert(self.records_.end(), records, records + count);
    ++self.completed_;
    --self.buffers_;
  }

  std::mutex mutex_;
  std::vector<orActivity> records_;
  std::atomic<size_t> buffer_size_{0};
  std::atomic<int> buffers_{0};
  int completed_ = 0;
  uint64_t recorded_before_ = 0;
  uint64_t dropped_before_ = 0;
  uint64_t dropped_ = 0;
};

class ActivityTest : public DeviceTest {
 protected:
  void TearDown() override {
    EXPECT_OK(orActivityDisableTracing());
    DeviceTest::TearDown();
  }

  static std::vector<orActivity> Of(const std::vector<orActivity>& records, orActivityKind kind) {
    std::vector<orActivity> found;
    std::copy_if(records.begin(), records.end(), std::back_inserter(found),
                 [=](const orActivity& record) { return record.kind == kind; });
    return found;
  }

  static std::vector<orActivity> Calls(const std::vector<orActivity>& records, const char* name) {
    std::vector<orActivity> found;
    for (const orActivity& record : Of(records, orActivityRuntime)) {
      if (std::string(record.name) == name) {
        found.push_back(record);
      }
    }
    return found;
  }

  // Checks that `call` queued `work` and that the work started after the call.
  static void ExpectPair(const orActivity& call, const orActivity& work) {
    EXPECT_EQ(call.correlation, work.correlation);
    EXPECT_EQ(call.thread, gettid());
    EXPECT_EQ(work.thread, gettid());
    EXPECT_EQ(call.device, work.device);
    EXPECT_EQ(call.stream, work.stream);
    EXPECT_LE(call.start_ns, call.end_ns);
    EXPECT_LE(call.start_ns, work.queued_ns);
    EXPECT_LE(work.queued_ns, work.start_ns);
    EXPECT_LE(work.start_ns, work.end_ns);
  }
};

inline orError_t Nothing(void*) { return orSuccess; }

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_ACTIVITY_FIXTURE_H_
