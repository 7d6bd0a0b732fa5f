// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/symmetric_rendezvous.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/private_stream.h"
#include "distributed/topology.h"
#include "runtime/c10/error.h"
#include "runtime/device/host_wait.h"

namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank puts into the store, followed by a handle for each rank.
struct Announcement {
  uint64_t nonce;  // of this rendezvous, if rank 0 says it
  uint64_t buffer_bytes;
  uint64_t pad_bytes;
  uint64_t device;
  uint64_t machine;
  occlProcess process;
};

uint64_t this_machine() { return std::hash<std::string>()(machine_identity()); }

struct Members {
  int rank = 0;
  int size = 0;
  c10::intrusive_ptr<c10d::Store> store;
  std::chrono::milliseconds timeout = kBackendDefaultTimeout;
  std::vector<int> global_ranks;
};

// Null if there is no process group of that name.
c10::intrusive_ptr<c10d::ProcessGroup> find_group(const std::string& name) {
  try {
    return c10d::resolve_process_group(name);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Null for a group without a backend for the device: its store is enough.
c10::intrusive_ptr<c10d::Backend::Options> find_options(c10d::ProcessGroup& group) {
  try {
    return group.getBackend(kOpenRegType)->getBackendOptions();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// A process group, or what set_group_info() has made without one.
Members members_of(const std::string& name) {
  Members members;
  if (const auto group = find_group(name); group != nullptr) {
    members.rank = group->getRank();
    members.size = group->getSize();
    members.store = group->getStore();
    if (const auto options = find_options(*group); options != nullptr) {
      members.timeout = options->timeout;
      members.global_ranks.assign(options->global_ranks_in_group.begin(),
                                  options->global_ranks_in_group.end());
    }
  } else {
    const c10d::symmetric_memory::GroupInfo& info = c10d::symmetric_memory::get_group_info(name);
    members.rank = info.rank;
    members.size = info.world_size;
    members.store = info.store;
  }
  if (members.global_ranks.empty()) {  // all
    members.global_ranks.resize(static_cast<size_t>(members.size));
    std::iota(members.global_ranks.begin(), members.global_ranks.end(), 0);
  }
  TORCH_CHECK_WITH(DistBackendError, members.store != nullptr, "symmetric memory: group ", name,
                   " has no store");
  TORCH_CHECK_WITH(DistBackendError, members.size <= OCCL_MAX_RANKS, "symmetric memory: group ",
                   name, " has ", members.size, " ranks: at most ", OCCL_MAX_RANKS);
  return members;
}

// What this process knows of the rendezvous of its groups. All ranks count alike, from the
// beginning of the group's store. Threads: any.
class History {
 public:
  static History& get() {
    static auto& history = *std::make_unique<History>().release();  // used until the very end
    return history;
  }

  // Of the keys of the next one.
  std::string next_prefix(const std::string& group, const c10::intrusive_ptr<c10d::Store>& store) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = entries_.try_emplace(group, Entry{Weak(store), 0, {}});
    if (!is_new && found->second.store.lock() != store) {
      found->second = {Weak(store), 0, {}};
    }
    return "symmetric_memory/" + group + "/" + std::to_string(++found->second.number) + "/";
  }

  // Notes where the ranks have agreed, and returns where they did before; or nothing.
  std::string exchange_agreement(const std::string& group, std::string agreement) {
    const std::lock_guard lock(mutex_);
    return std::exchange(entries_.at(group).agreement, std::move(agreement));
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10d::Store>;
  struct Entry {
    Weak store;
    uint64_t number;
    std::string agreement;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by group
};

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Without the stack that torch's errors bring along.
std::string reason(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

class Rendezvous {
 public:
  Rendezvous(const SymmetricPiece& mine, std::string group)
      : mine_(mine),
        members_(members_of(group)),
        prefix_(History::get().next_prefix(group, members_.store)),
        deadline_(Clock::now() + members_.timeout) {
    peers_.group = std::move(group);
    peers_.rank = members_.rank;
    peers_.global_ranks = members_.global_ranks;
  }
  // What is not handed over: the rendezvous has failed.
  ~Rendezvous() { (void)release_peers(peers_); }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  std::shared_ptr<const SymmetricPeers> run() {
    members_.store->set(key(members_.rank), announcement());
    std::vector<occlWindowMember> window(static_cast<size_t>(members_.size));
    uint64_t nonce = 0;
    // Before anything is mapped: a rank that finds it gives up, and with it its memory.
    std::string failed = find_other_machine();
    for (int peer = 0; peer < members_.size && failed.empty(); ++peer) {
      connect(peer, window[static_cast<size_t>(peer)], nonce, failed);
    }
    const occlWindowConfig_t config{mine_.buffer_bytes, mine_.pad_bytes, members_.timeout.count()};
    if (failed.empty() && occlWindowCreate(&peers_.window, members_.size, members_.rank,
                                           window.data(), &config) != occlSuccess) {
      failed = occlGetLastError();
    }
    const std::string agreement = prefix_ + std::to_string(nonce) + "/";
    agree(agreement, failed);
    // All have read it, and have left the last rendezvous.
    forget(key(members_.rank));
    const std::string last = History::get().exchange_agreement(peers_.group, agreement);
    if (members_.rank == 0 && !last.empty()) {
      forget(last + kMapped);
      forget(last + kVerdict);
    }
    auto done = std::make_shared<SymmetricPeers>(std::move(peers_));
    peers_ = {};
    return done;
  }

 private:
  static constexpr char kMapped[] = "mapped";
  static constexpr char kVerdict[] = "verdict";

  void forget(const std::string& key) const {
    try {
      members_.store->deleteKey(key);
    } catch (const std::exception&) {
      return;  // the store cannot delete: no other rendezvous has this key
    }
  }

  std::string key(int rank) const { return prefix_ + std::to_string(rank); }

  std::chrono::milliseconds left() const {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                    std::chrono::milliseconds(1));
  }

  std::vector<uint8_t> announcement() const {
    Announcement announcement{std::random_device()(), mine_.buffer_bytes,
                              mine_.pad_bytes,        static_cast<uint64_t>(mine_.device),
                              this_machine(),         {}};
    announcement.nonce = announcement.nonce << 32 | std::random_device()();
    check_occl(occlGetProcess(&announcement.process));
    // Not in the order of the program's streams: they may wait for other ranks. A program orders
    // its accesses by barriers.
    const PrivateStream stream(mine_.device);
    std::vector<orIpcMemoryHandle> handles(static_cast<size_t>(members_.size));
    for (int peer = 0; peer < members_.size; ++peer) {
      if (peer != members_.rank) {
        OPENREG_CHECK(orIpcExport(&handles[static_cast<size_t>(peer)], mine_.base, mine_.bytes(),
                                  stream.get()));
      }
    }
    const size_t size = handles.size() * sizeof(handles[0]);
    std::vector<uint8_t> bytes(sizeof(announcement) + size);
    std::memcpy(bytes.data(), &announcement, sizeof(announcement));
    std::memcpy(bytes.data() + sizeof(announcement), handles.data(), size);
    return bytes;
  }

  std::vector<uint8_t> read(int peer) const {
    std::vector<uint8_t> bytes;
    try {
      const HostWait wait;
      members_.store->wait({key(peer)}, left());
      bytes = members_.store->get(key(peer));
    } catch (const std::exception& error) {
      TORCH_CHECK_WITH(DistBackendError, false, "symmetric memory: group ", peers_.group, ", rank ",
                       members_.rank, ": rank ", peer, " has not come to the rendezvous within ",
                       members_.timeout.count(), " ms: ", reason(error));
    }
    TORCH_CHECK_WITH(DistBackendError,
                     bytes.size() == sizeof(Announcement) + static_cast<size_t>(members_.size) *
                                                                sizeof(orIpcMemoryHandle),
                     "symmetric memory: group ", peers_.group, ": rank ", peer,
                     " has another version of torch_openreg, or another number of ranks");
    return bytes;
  }

  std::string find_other_machine() const {
    for (int peer = 0; peer < members_.size; ++peer) {
      Announcement announcement;
      const std::vector<uint8_t> bytes = read(peer);
      std::memcpy(&announcement, bytes.data(), sizeof(announcement));
      if (announcement.machine != this_machine()) {
        return "rank " + std::to_string(members_.rank) + " cannot map the memory of rank " +
               std::to_string(peer) + ": it is on another machine";
      }
    }
    return "";
  }

  // Maps the memory of a rank. What goes wrong with it is `failed`, for all ranks to know.
  void connect(int peer, occlWindowMember& member, uint64_t& nonce, std::string& failed) {
    std::vector<uint8_t> bytes = read(peer);
    Announcement announcement;
    void* base = nullptr;
    for (;;) {
      std::memcpy(&announcement, bytes.data(), sizeof(announcement));
      const orError_t error = map(peer, bytes, announcement, &base, failed);
      // It may be of a process that is dead, from before a restart: there will be another one.
      const bool stale = error == orErrorProcessEnded || error == orErrorInvalidValue;
      std::vector<uint8_t> next = bytes;
      while (stale && next == bytes && Clock::now() < deadline_) {
        const HostWait wait;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        next = members_.store->check({key(peer)}) ? members_.store->get(key(peer)) : bytes;
      }
      if (next == bytes || next.size() != bytes.size()) {
        break;
      }
      bytes = std::move(next);
    }
    if (peer == 0) {
      nonce = announcement.nonce;
    }
    if (!failed.empty()) {
      return;
    }
    if (announcement.buffer_bytes != mine_.buffer_bytes ||
        announcement.pad_bytes != mine_.pad_bytes) {
      failed = sizes(members_.rank, mine_.buffer_bytes, mine_.pad_bytes) + ", " +
               sizes(peer, announcement.buffer_bytes, announcement.pad_bytes) +
               ": all ranks of a group must allocate the same size";
      return;
    }
    auto* const start = static_cast<char*>(base);
    peers_.buffers.push_back(start);
    peers_.signal_pads.push_back(start + mine_.pad_offset());
    member = {announcement.process, start, start + mine_.pad_offset(),
              start + mine_.state_offset()};
  }

  static std::string sizes(int rank, uint64_t buffer, uint64_t pad) {
    return "rank " + std::to_string(rank) + " has " + std::to_string(buffer) +
           " bytes and a signal pad of " + std::to_string(pad);
  }

  orError_t map(int peer, const std::vector<uint8_t>& bytes, const Announcement& announcement,
                void** base, std::string& failed) {
    const std::string text = "rank " + std::to_string(members_.rank) +
                             " cannot map the memory of rank " + std::to_string(peer) + ": ";
    failed.clear();
    if (peer == members_.rank) {
      *base = mine_.base;
      return orSuccess;
    }
    orIpcMemoryHandle handle;
    std::memcpy(
        &handle,
        bytes.data() + sizeof(announcement) + static_cast<size_t>(members_.rank) * sizeof(handle),
        sizeof(handle));
    // The driver maps memory for streams of the device that it is of.
    const auto device = static_cast<c10::DeviceIndex>(announcement.device);
    if (announcement.device >= static_cast<uint64_t>(device_count())) {
      failed = text + "it is on device " + std::to_string(announcement.device) + ", and rank " +
               std::to_string(members_.rank) + " has " + std::to_string(device_count()) +
               " devices";
      return orErrorInvalidDevice;
    }
    const PrivateStream stream(device);
    const orError_t error = orIpcImport(base, &handle, stream.get());
    if (error == orSuccess) {
      peers_.imports.emplace_back(*base, device);
    } else {
      failed = text + orGetLastErrorDetail();
    }
    return error;
  }

  // Waits until all ranks have mapped everything, or one says why it cannot.
  void agree(const std::string& prefix, const std::string& failed) const {
    c10d::Store& store = *members_.store;
    const std::string verdict = prefix + kVerdict;
    std::string text = failed;
    if (!failed.empty()) {
      store.set(verdict, bytes_of(failed));
    } else if (store.add(prefix + kMapped, 1) == members_.size) {
      store.set(verdict, bytes_of("ok"));
      text = "ok";
    }
    if (text.empty()) {
      try {
        const HostWait wait;
        store.wait({verdict}, left());
        const std::vector<uint8_t> read = store.get(verdict);
        text.assign(read.begin(), read.end());
      } catch (const std::exception& error) {
        TORCH_CHECK_WITH(DistBackendError, false, "symmetric memory: group ", peers_.group,
                         ", rank ", members_.rank,
                         ": not all ranks have mapped each other's memory within ",
                         members_.timeout.count(), " ms: ", reason(error));
      }
    }
    TORCH_CHECK_WITH(DistBackendError, text == "ok", "symmetric memory: group ", peers_.group, ": ",
                     text);
  }

  const SymmetricPiece mine_;
  const Members members_;
  const std::string prefix_;
  const Clock::time_point deadline_;
  SymmetricPeers peers_;
};

}  // namespace

std::shared_ptr<const SymmetricPeers> rendezvous_pieces(const SymmetricPiece& mine,
                                                        const std::string& group) {
  return Rendezvous(mine, group).run();
}

bool release_peers(const SymmetricPeers& peers) noexcept {
  if (occlWindowDestroy(peers.window) == occlInProgress) {
    return false;
  }
  for (const auto& [pointer, device] : peers.imports) {
    orStream_t stream = nullptr;
    // Nothing that is queued uses it any more: any stream will do.
    if (orGetDefaultStream(&stream, device) == orSuccess) {
      (void)orIpcRelease(pointer, stream);
    }
  }
  return true;
}

}  // namespace openreg
