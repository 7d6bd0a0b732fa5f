// SPDX-License-Identifier: BSD-3-Clause
#include "aten/launch/launch_record.h"

#include <memory>
#include <mutex>
#include <vector>

namespace openreg {

// Homes are never destroyed: a launch record may be returned after its launching thread has ended.
class RecordHome {
 public:
  LaunchRecord* take() {
    if (C10_UNLIKELY(own_ == nullptr)) {
      own_ = returned_.exchange(nullptr, std::memory_order_acquire);
      if (own_ == nullptr) {
        auto fresh = std::make_unique<LaunchRecord>();
        fresh->home = this;
        return fresh.release();  // owned by this home after LaunchRecord::release()
      }
    }
    LaunchRecord* const record = own_;
    own_ = record->next;
    return record;
  }

  // Accepts a record that is released on the home's own thread.
  void keep(LaunchRecord* record) {
    record->next = own_;
    own_ = record;
  }

  // Accepts a record that is released on any other thread.
  void give_back(LaunchRecord* record) {
    record->next = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(record->next, record, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }

 private:
  LaunchRecord* own_ = nullptr;
  alignas(64) std::atomic<LaunchRecord*> returned_{nullptr};
};

namespace {

// Never destroyed, because workers may return launch records while the process exits.
struct IdleHomes {
  std::mutex mutex;
  std::vector<RecordHome*> homes;
};

IdleHomes& idle_homes() {
  static auto* const idle = std::make_unique<IdleHomes>().release();
  return *idle;
}

thread_local RecordHome* this_home = nullptr;

RecordHome* adopt_home() {
  struct Lease {
    RecordHome* home = nullptr;
    ~Lease() {
      this_home = nullptr;
      IdleHomes& idle = idle_homes();
      const std::lock_guard<std::mutex> lock(idle.mutex);
      idle.homes.push_back(home);
    }
  };
  thread_local Lease lease;
  IdleHomes& idle = idle_homes();
  const std::lock_guard<std::mutex> lock(idle.mutex);
  if (idle.homes.empty()) {
    lease.home = std::make_unique<RecordHome>().release();
  } else {
    lease.home = idle.homes.back();
    idle.homes.pop_back();
  }
  this_home = lease.home;
  return this_home;
}

}  // namespace

LaunchRecord* LaunchRecord::acquire() {
  RecordHome* const home = this_home;
  return (C10_LIKELY(home != nullptr) ? home : adopt_home())->take();
}

bool LaunchRecord::is_home() const { return home == this_home; }

void LaunchRecord::release(bool at_home) {
  aliases.reset();
  exception.reset();
  if (at_home) {
    home->keep(this);
  } else {
    home->give_back(this);
  }
}

}  // namespace openreg
