// SPDX-License-Identifier: BSD-3-Clause
//
// ActivityCollector - takes the records of the driver (openreg.h, "activity") from start() to
// stop(), within a limit of memory.
//
// One per process, since the driver has one set of callbacks. Knows neither torch nor Kineto. It
// owns the buffers that it lends to the driver. Threads: start(), stop() and take() belong to one
// thread at a time; the driver calls back from any thread.
#ifndef PROFILER_COLLECTOR_H_
#define PROFILER_COLLECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/openreg.h"

namespace openreg {

class ActivityCollector {
 public:
  static ActivityCollector& get();

  // Records from now on, in at most `most_bytes` of memory. Throws std::runtime_error with the
  // driver's words if it refuses, as it does while somebody else records.
  void start(size_t most_bytes);

  // Ends that, after all work that was queued meanwhile has run. Does nothing if it was not
  // started.
  void stop();

  // While it is started: stops recording for a while, and goes on. Does nothing otherwise.
  void pause();
  void resume();

  // What was recorded, in no order.
  std::vector<orActivity> take();

  // Records since start() for which there was no memory.
  uint64_t dropped() const { return dropped_; }

  bool started() const { return started_; }

 private:
  static constexpr size_t kBufferBytes = size_t{64} << 10;

  using Records = std::unique_ptr<orActivity[]>;

  ActivityCollector() = default;
  static void request(void** buffer, size_t* size);
  static void complete(void* buffer, size_t used);

  bool started_ = false;
  uint64_t dropped_ = 0;
  uint64_t dropped_before_ = 0;

  std::mutex mutex_;  // of what follows; never held while the driver is called
  size_t bytes_left_ = 0;
  std::map<void*, Records> lent_;  // by address: threads write to them
  std::vector<std::vector<orActivity>> returned_;
};

}  // namespace openreg

#endif  // PROFILER_COLLECTOR_H_
