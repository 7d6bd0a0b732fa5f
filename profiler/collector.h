// SPDX-License-Identifier: BSD-3-Clause
//
// ActivityCollector - collects the driver's records (openreg.h, "activity") from start() to stop(),
// within a memory limit.
//
// There is one per process, because the driver has one set of callbacks. It depends on neither
// torch nor Kineto. It owns the buffers that it gives to the driver. Only one thread at a time may
// call start(), stop() and take(); the driver calls back from any thread.
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

  // Starts recording, in at most `most_bytes` bytes of memory. Throws std::runtime_error with the
  // driver's message if the driver refuses, as it does while another collector is recording.
  void start(size_t most_bytes);

  // Stops recording once all work that was queued in the meantime has run. Does nothing if not
  // started.
  void stop();

  // Suspend and continue recording. Both do nothing if not started.
  void pause();
  void resume();

  // Returns the records since start(), in no particular order, and drops them.
  std::vector<orActivity> take();

  // Returns the number of records since start() that did not fit in memory.
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

  std::mutex mutex_;  // guards the members below; never held during a driver call
  size_t bytes_left_ = 0;
  std::map<void*, Records> in_use_;  // buffers that the driver writes to, by address
  std::vector<std::vector<orActivity>> returned_;
};

}  // namespace openreg

#endif  // PROFILER_COLLECTOR_H_
