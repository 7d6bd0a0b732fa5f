// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnostics/race_detector.h"

#include <algorithm>
#include <utility>

namespace openreg {
namespace {

bool writes(UseKind kind) { return kind != UseKind::kRead; }

}  // namespace

bool Extent::overlaps(const Extent& other) const {
  if (end <= other.begin || other.end <= begin) {
    return false;
  }
  const size_t common = std::max(period, other.period);
  const auto window = [](const Extent& extent) {
    return extent.period == 0 ? extent.end - extent.begin : extent.width;
  };
  if (common == 0 || (period != 0 && other.period != 0 && period != other.period) ||
      window(*this) >= common || window(other) >= common) {
    return true;
  }
  // In each period, both extents have one window. Compute the distance from the start of this
  // window to the start of the other window.
  const size_t distance = other.begin >= begin ? (other.begin - begin) % common
                                               : (common - (begin - other.begin) % common) % common;
  return distance < window(*this) || distance + window(other) > common;
}

bool Extent::contains(const Extent& other) const {
  return begin <= other.begin && other.end <= end &&
         (period == 0 || (period == other.period && width == other.width && begin == other.begin));
}

uint64_t RaceDetector::at(const Clock& clock, size_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

void RaceDetector::merge(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) {
    clock.resize(other.size());
  }
  for (size_t i = 0; i < other.size(); ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

bool RaceDetector::is_before(const PastUse& use, size_t stream, const Clock& clock) {
  return use.stream == stream || at(clock, use.stream) >= use.time;
}

size_t RaceDetector::index_of(StreamName stream) {
  const auto [place, fresh] = indices_.try_emplace(stream.handle, clocks_.size());
  if (fresh) {
    devices_.push_back(stream.device);
    clocks_.emplace_back(place->second + 1);
  }
  return place->second;
}

RaceDetector::Blocks::iterator RaceDetector::find(uintptr_t address) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) {
    return blocks_.end();
  }
  --next;
  return address < next->second.end ? next : blocks_.end();
}

// Drops the past uses that the new use covers. Such a past use is ordered before the new use, lies
// within its bytes, and is a read if the new use is a read. Any later use that races with a dropped
// use also races with the new one.
void RaceDetector::add(Block& block, PastUse use, const Clock& clock) {
  std::erase_if(block.history, [&](const PastUse& past) {
    return is_before(past, use.stream, clock) && use.extent.contains(past.extent) &&
           (writes(use.kind) || !writes(past.kind));
  });
  if (block.history.size() == kHistory) {
    block.history.erase(block.history.begin());
  }
  block.history.push_back(std::move(use));
}

std::vector<Race> RaceDetector::launch(const std::shared_ptr<const WatchedLaunch>& launch,
                                       const std::vector<Use>& uses, bool keep) {
  const size_t stream = index_of(launch->stream);
  merge(clocks_[stream], host_);
  const Clock& clock = clocks_[stream];
  std::vector<Race> races;
  for (const Use& use : uses) {
    const auto found = find(use.extent.begin);
    if (found == blocks_.end() || !found->second.live) {
      continue;
    }
    const Block& block = found->second;
    for (const PastUse& past : block.history) {
      if (!is_before(past, stream, clock) && (writes(past.kind) || writes(use.kind)) &&
          past.extent.overlaps(use.extent)) {
        races.push_back(
            {{past.kind, past.launch}, {use.kind, launch}, found->first, block.end - found->first});
      }
    }
  }
  if (!races.empty() && !keep) {
    return races;
  }
  const uint64_t time = ++clocks_[stream][stream];
  for (const Use& use : uses) {
    const auto found = find(use.extent.begin);
    if (found != blocks_.end() && found->second.live) {
      add(found->second, {use.extent, use.kind, stream, time, launch}, clock);
    }
  }
  return races;
}

// Removes [begin, end) from all blocks. The remaining parts of a block keep its history.
void RaceDetector::retire_overlapped(uintptr_t begin, uintptr_t end) {
  auto place = blocks_.lower_bound(begin);
  if (place != blocks_.begin() && std::prev(place)->second.end > begin) {
    --place;
  }
  while (place != blocks_.end() && place->first < end) {
    const uintptr_t start = place->first;
    Block block = std::move(place->second);
    place = blocks_.erase(place);
    if (block.end > end) {
      place = blocks_.emplace(end, block).first;
    }
    if (start < begin) {
      block.end = begin;
      blocks_.emplace(start, std::move(block));
    }
  }
}

std::vector<Race> RaceDetector::allocate(uintptr_t begin, size_t bytes,
                                         const std::shared_ptr<const WatchedLaunch>& launch) {
  const size_t stream = index_of(launch->stream);
  merge(clocks_[stream], host_);
  const Clock& clock = clocks_[stream];
  const uintptr_t end = begin + bytes;
  const Extent extent{begin, end, bytes, 0};
  std::vector<Race> races;
  auto place = blocks_.lower_bound(begin);
  if (place != blocks_.begin() && std::prev(place)->second.end > begin) {
    --place;
  }
  for (; place != blocks_.end() && place->first < end; ++place) {
    // Skip live memory. Also skip memory that another stream owns, because the allocator waits
    // before it reuses such memory.
    if (place->second.live || place->second.owner != stream) {
      continue;
    }
    for (const PastUse& past : place->second.history) {
      if (!is_before(past, stream, clock) && past.extent.overlaps(extent)) {
        races.push_back({{past.kind, past.launch}, {UseKind::kAllocation, launch}, begin, bytes});
      }
    }
  }
  retire_overlapped(begin, end);
  Block& block = blocks_[begin];
  block.end = end;
  block.owner = stream;
  const uint64_t time = ++clocks_[stream][stream];
  block.history.push_back({extent, UseKind::kAllocation, stream, time, launch});
  return races;
}

void RaceDetector::free(uintptr_t begin) {
  const auto place = blocks_.find(begin);
  if (place == blocks_.end()) {
    return;
  }
  Block& block = place->second;
  std::erase_if(block.history, [&](const PastUse& past) {
    return past.stream == block.owner || std::find(block.guarded.begin(), block.guarded.end(),
                                                   past.stream) != block.guarded.end();
  });
  if (block.history.empty()) {
    blocks_.erase(place);
    return;
  }
  block.live = false;
}

void RaceDetector::guard(uintptr_t begin, StreamName stream) {
  const auto place = blocks_.find(begin);
  if (place != blocks_.end()) {
    place->second.guarded.push_back(index_of(stream));
  }
}

void RaceDetector::record(uint64_t event, StreamName stream) {
  const size_t recorded = index_of(stream);
  merge(clocks_[recorded], host_);
  events_[event] = clocks_[recorded];
}

void RaceDetector::forget(uint64_t event) { events_.erase(event); }

void RaceDetector::wait(StreamName stream, uint64_t event) {
  const auto found = events_.find(event);
  if (found != events_.end()) {
    merge(clocks_[index_of(stream)], found->second);
  }
}

void RaceDetector::join(uint64_t event) {
  const auto found = events_.find(event);
  if (found != events_.end()) {
    merge(host_, found->second);
  }
}

void RaceDetector::order(StreamName earlier, StreamName later) {
  const Clock known = clocks_[index_of(earlier)];  // a copy, because index_of() may move the clocks
  merge(clocks_[index_of(later)], known);
}

void RaceDetector::join(StreamName stream) { merge(host_, clocks_[index_of(stream)]); }

void RaceDetector::join_device(int device) {
  for (size_t stream = 0; stream < clocks_.size(); ++stream) {
    if (devices_[stream] == device) {
      merge(host_, clocks_[stream]);
    }
  }
}

}  // namespace openreg
