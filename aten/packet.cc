// SPDX-License-Identifier: BSD-3-Clause
#include "aten/packet.h"

#include <memory>
#include <mutex>
#include <vector>

namespace openreg {

// Homes live for ever: a packet may come back after the thread that launched it ended.
class PacketHome {
 public:
  Packet* take() {
    if (C10_UNLIKELY(own_ == nullptr)) {
      own_ = returned_.exchange(nullptr, std::memory_order_acquire);
      if (own_ == nullptr) {
        auto fresh = std::make_unique<Packet>();
        fresh->home = this;
        return fresh.release();  // owned by this home from its release on
      }
    }
    Packet* const packet = own_;
    own_ = packet->next;
    return packet;
  }

  // On the thread of this home.
  void keep(Packet* packet) {
    packet->next = own_;
    own_ = packet;
  }

  // On any other thread.
  void give_back(Packet* packet) {
    packet->next = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(packet->next, packet, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }

 private:
  Packet* own_ = nullptr;
  alignas(64) std::atomic<Packet*> returned_{nullptr};
};

namespace {

// Never destroyed: workers may give packets back while the process exits.
struct IdleHomes {
  std::mutex mutex;
  std::vector<PacketHome*> homes;
};

IdleHomes& idle_homes() {
  static auto* const idle = std::make_unique<IdleHomes>().release();
  return *idle;
}

thread_local PacketHome* this_home = nullptr;

PacketHome* adopt_home() {
  struct Lease {
    PacketHome* home = nullptr;
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
    lease.home = std::make_unique<PacketHome>().release();
  } else {
    lease.home = idle.homes.back();
    idle.homes.pop_back();
  }
  this_home = lease.home;
  return this_home;
}

}  // namespace

Packet* Packet::acquire() {
  PacketHome* const home = this_home;
  return (C10_LIKELY(home != nullptr) ? home : adopt_home())->take();
}

bool Packet::is_home() const { return home == this_home; }

void Packet::release(bool at_home) {
  aliases.reset();
  exception.reset();
  if (at_home) {
    home->keep(this);
  } else {
    home->give_back(this);
  }
}

}  // namespace openreg
