// SPDX-License-Identifier: BSD-3-Clause
//
// ActivityCollector - collects the driver's records (openreg.h, "activity") between start() and
// stop(), within a memory limit.
//
// Each process has one collector, because the driver has one set of callbacks. The collector
// depends on neither torch nor Kineto. It owns the buffers that it passes to the driver. Only one
// thread at a time may call start(), stop() and take(); the driver calls the callbacks on any
// thread.
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

  // Starts recording, with at most `most_bytes` bytes of memory. If the driver refuses, as it does
  // while another collector is recording, throws std::runtime_error with the driver's message.
  void start(size_t most_bytes);

  // Stops recording after all work that was queued during the recording has run. Does nothing if
  // recording was not started.
  void stop();

  // Pause and continue recording. Both do nothing if recording was not started.
  void pause();
  void resume();

  // Returns the records since start(), in no particular order, and removes them from the collector.
  std::vector<orActivity> take();

  // Returns the number of records since start() that were dropped because the memory was full.
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

  std::mutex mutex_;  // guards the members below; never locked during a driver call
  size_t bytes_left_ = 0;
  std::map<void*, Records> in_use_;  // buffers to which the driver writes, by address
  std::vector<std::vector<orActivity>> returned_;
};

}  // namespace openreg

#endif  // PROFILER_COLLECTOR_H_
