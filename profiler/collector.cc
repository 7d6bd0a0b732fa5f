// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/collector.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace openreg {
namespace {

void check(orError_t error) {
  if (error != orSuccess) {
    throw std::runtime_error(orGetLastErrorDetail());
  }
}

uint64_t dropped_so_far() {
  uint64_t recorded = 0, dropped = 0;
  check(orActivityGetCounts(&recorded, &dropped));
  return dropped;
}

}  // namespace

ActivityCollector& ActivityCollector::get() {
  // Never destroyed, because threads may end after static objects have been destroyed.
  static ActivityCollector& collector = *new ActivityCollector;
  return collector;
}

void ActivityCollector::start(size_t most_bytes) {
  stop();
  (void)take();
  dropped_ = 0;
  {
    const std::lock_guard lock(mutex_);
    bytes_left_ = most_bytes;
  }
  check(orActivityRegisterCallbacks(&request, &complete));
  dropped_before_ = dropped_so_far();
  check(orActivityEnableTracing());
  started_ = true;
}

void ActivityCollector::stop() {
  if (!started_) {
    return;
  }
  started_ = false;
  check(orActivityDisableTracing());
  const orError_t flushed = orActivityFlushAll();
  const std::string detail = flushed != orSuccess ? orGetLastErrorDetail() : "";
  check(orActivityRegisterCallbacks(nullptr, nullptr));
  if (flushed != orSuccess) {
    throw std::runtime_error(detail);
  }
  dropped_ = dropped_so_far() - dropped_before_;
}

void ActivityCollector::pause() {
  if (started_) {
    check(orActivityDisableTracing());
  }
}

void ActivityCollector::resume() {
  if (started_) {
    check(orActivityEnableTracing());
  }
}

std::vector<orActivity> ActivityCollector::take() {
  std::vector<std::vector<orActivity>> returned;
  {
    const std::lock_guard lock(mutex_);
    returned = std::exchange(returned_, {});
  }
  size_t count = 0;
  for (const auto& part : returned) {
    count += part.size();
  }
  std::vector<orActivity> records;
  records.reserve(count);
  for (auto& part : returned) {
    records.insert(records.end(), part.begin(), part.end());
    part = {};
  }
  return records;
}

void ActivityCollector::request(void** buffer, size_t* size) {
  ActivityCollector& self = get();
  const std::lock_guard lock(self.mutex_);
  if (self.bytes_left_ < kBufferBytes) {
    return;
  }
  self.bytes_left_ -= kBufferBytes;
  Records made = std::make_unique_for_overwrite<orActivity[]>(kBufferBytes / sizeof(orActivity));
  *buffer = made.get();
  *size = kBufferBytes / sizeof(orActivity) * sizeof(orActivity);
  self.in_use_.emplace(*buffer, std::move(made));
}

// Takes the records out of a buffer. Each thread has its own buffer, and most buffers are returned
// nearly empty. Therefore the unused space of a buffer counts as free again.
void ActivityCollector::complete(void* buffer, size_t used) {
  ActivityCollector& self = get();
  const std::lock_guard lock(self.mutex_);
  const auto found = self.in_use_.find(buffer);
  if (found == self.in_use_.end()) {
    return;
  }
  const orActivity* const first = found->second.get();
  const size_t count = used / sizeof(orActivity);
  self.returned_.emplace_back(first, first + count);
  self.bytes_left_ += kBufferBytes - used;
  self.in_use_.erase(found);
}

}  // namespace openreg
