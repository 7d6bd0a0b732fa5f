// SPDX-License-Identifier: BSD-3-Clause
//
// History - records the events of one device's allocator. It stores the most recent events with
// their times and, depending on the settings, their contexts (context.h). It also stores the
// contexts in which the currently allocated memory was allocated.
//
// A History is an Observer that does nothing until start(). When its ring buffer is full, the
// oldest event is dropped. An event occupies about 150 bytes plus its context. Any thread may call
// any function; one mutex is held during an insertion.
#ifndef RUNTIME_ALLOCATOR_HISTORY_H_
#define RUNTIME_ALLOCATOR_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/allocator/context.h"
#include "runtime/allocator/observer.h"

namespace openreg::allocator {

// Selects the contexts to store. Each level includes the previous ones.
enum class ContextLevel : uint8_t {
  kNone,
  kState,  // contexts for currently allocated memory
  kAlloc,  // contexts for allocation events
  kAll,    // contexts for free events
};

class OPENREG_API History final : public Observer {
 public:
  struct Settings {
    bool events = true;  // if false, tracks only currently allocated memory
    size_t capacity = 0;
    ContextLevel contexts = ContextLevel::kNone;
    uint32_t skipped = 0;  // Actions that are not recorded: bit `1 << Action` is set
  };
  struct Entry {
    Event event;
    int64_t time_us = 0;  // microseconds since 1970
    Context context;
  };

  // Starts recording. If `clear` is false, keeps the existing entries, up to the new capacity.
  void start(const Settings& settings, bool clear);
  // Stops recording and drops all entries and contexts.
  void stop();

  void observe(const Event& event) override;

  struct Content {
    std::vector<Entry> entries;  // oldest first
    // The contexts in which the existing blocks and segments were allocated, by address.
    std::unordered_map<uintptr_t, Context> blocks;
    std::unordered_map<uintptr_t, Context> segments;
  };
  Content content() const;

 private:
  void keep(const Event& event, const Context& context);

  mutable std::mutex mutex_;
  bool on_ = false;
  Settings settings_;
  std::deque<Entry> entries_;  // a deque grows in pieces, so no long copy happens under the lock
  std::unordered_map<uintptr_t, Context> blocks_;
  std::unordered_map<uintptr_t, Context> segments_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_HISTORY_H_
