// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/history.h"

#include <chrono>

namespace openreg::allocator {
namespace {

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Returns the lowest level at which the context of an event is stored.
ContextLevel level_of(Action action) {
  switch (action) {
    case Action::kAlloc:
    case Action::kSegmentAlloc:
    case Action::kOutOfMemory:
    case Action::kSnapshot:
      return ContextLevel::kAlloc;
    case Action::kFreeRequested:
    case Action::kFreeCompleted:
    case Action::kSegmentFree:
      return ContextLevel::kAll;
  }
  return ContextLevel::kAll;
}

}  // namespace

void History::start(const Settings& settings, bool clear) {
  const std::lock_guard lock(mutex_);
  on_ = true;
  settings_ = settings;
  if (clear) {
    entries_.clear();
  }
  while (entries_.size() > settings_.capacity) {
    entries_.pop_front();
  }
}

void History::stop() {
  const std::lock_guard lock(mutex_);
  on_ = false;
  entries_.clear();
  entries_.shrink_to_fit();
  blocks_.clear();
  segments_.clear();
}

void History::observe(const Event& event) {
  const Context context = ContextScope::current();
  const std::lock_guard lock(mutex_);
  if (!on_) {
    return;
  }
  const bool wanted = settings_.contexts >= ContextLevel::kState;
  switch (event.action) {
    case Action::kAlloc:
      if (wanted) {
        blocks_[event.address] = context;
      }
      break;
    case Action::kFreeCompleted:
      blocks_.erase(event.address);
      break;
    case Action::kSegmentAlloc:
      if (wanted) {
        segments_[event.address] = context;
      }
      break;
    case Action::kSegmentFree:
      segments_.erase(event.address);
      break;
    case Action::kFreeRequested:
    case Action::kOutOfMemory:
    case Action::kSnapshot:
      break;
  }
  keep(event, context);
}

void History::keep(const Event& event, const Context& context) {
  const bool skipped = (settings_.skipped >> static_cast<int>(event.action) & 1) != 0;
  if (!settings_.events || skipped || settings_.capacity == 0) {
    return;
  }
  if (entries_.size() >= settings_.capacity) {
    entries_.pop_front();
  }
  entries_.push_back({.event = event,
                      .time_us = now_us(),
                      .context = settings_.contexts >= level_of(event.action) ? context : nullptr});
}

History::Content History::content() const {
  const std::lock_guard lock(mutex_);
  return {.entries = {entries_.begin(), entries_.end()}, .blocks = blocks_, .segments = segments_};
}

}  // namespace openreg::allocator
