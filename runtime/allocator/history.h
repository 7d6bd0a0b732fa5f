// SPDX-License-Identifier: BSD-3-Clause
//
// History - what the allocator of one device did: the latest events with their times and, as far as
// wanted, where in the program they happened (context.h); and the same for memory that is held now.
//
// An Observer which does nothing until start(). The ring of events drops the oldest ones beyond its
// capacity; an event takes about 150 bytes beside its context. Threads: any; one mutex, held for
// the time of an insertion.
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

// Whose contexts are kept; each includes the ones before it.
enum class ContextLevel : uint8_t {
  kNone,
  kState,  // of memory that is held now
  kAlloc,  // of events that give memory
  kAll,    // of events that take it back
};

class OPENREG_API History final : public Observer {
 public:
  struct Settings {
    bool events = true;  // false: only what memory is held
    size_t capacity = 0;
    ContextLevel contexts = ContextLevel::kNone;
    uint32_t skipped = 0;  // events that are left out: bit 1 << Action
  };
  struct Entry {
    Event event;
    int64_t time_us = 0;  // since 1970
    Context context;
  };

  // Goes on with what is there already, up to the new capacity. `clear`: without it.
  void start(const Settings& settings, bool clear);
  // Forgets everything.
  void stop();

  void observe(const Event& event) override;

  struct Content {
    std::vector<Entry> entries;  // the oldest first
    // Where blocks and segments that are held now, by address, were allocated.
    std::unordered_map<uintptr_t, Context> blocks;
    std::unordered_map<uintptr_t, Context> segments;
  };
  Content content() const;

 private:
  void keep(const Event& event, const Context& context);

  mutable std::mutex mutex_;
  bool on_ = false;
  Settings settings_;
  std::deque<Entry> entries_;  // grows by pieces: no long copy under the lock
  std::unordered_map<uintptr_t, Context> blocks_;
  std::unordered_map<uintptr_t, Context> segments_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_HISTORY_H_
