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
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/private_stream.h"
#include "distributed/rendezvous.h"
#include "distributed/topology.h"
#include "runtime/c10/error.h"
#include "runtime/device/host_wait.h"

namespace openreg {
namespace {

// The data that a rank sends to the other ranks. One handle per rank follows it.
struct Announcement {
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

// Returns the process group with this name, or null if there is none.
c10::intrusive_ptr<c10d::ProcessGroup> find_group(const std::string& name) {
  try {
    return c10d::resolve_process_group(name);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Returns the options of the group's backend for the device. Returns null if the group has no such
// backend; in this case only the group's store is needed.
c10::intrusive_ptr<c10d::Backend::Options> find_options(c10d::ProcessGroup& group) {
  try {
    return group.getBackend(kOpenRegType)->getBackendOptions();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Returns the ranks and the store of a process group. If there is no group with this name, returns
// those that set_group_info() has set.
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
  if (members.global_ranks.empty()) {  // an empty list means all ranks
    members.global_ranks.resize(static_cast<size_t>(members.size));
    std::iota(members.global_ranks.begin(), members.global_ranks.end(), 0);
  }
  TORCH_CHECK_WITH(DistBackendError, members.store != nullptr, "symmetric memory: group ", name,
                   " has no store");
  TORCH_CHECK_WITH(DistBackendError, members.size <= OCCL_MAX_RANKS, "symmetric memory: group ",
                   name, " has ", members.size, " ranks, but symmetric memory supports at most ",
                   OCCL_MAX_RANKS);
  return members;
}

// Counts the rendezvous of each group in this process since the creation of the group's store. All
// ranks have the same count, so they use the same keys. Any thread may call the functions.
class History {
 public:
  // The second phase of a rendezvous. Its keys can be deleted when all ranks have arrived at the
  // next rendezvous.
  struct Phase {
    std::string prefix;
    RendezvousResult result;
  };

  static History& get() {
    // Never destroyed, because it is used until the process exits.
    static auto& history = *std::make_unique<History>().release();
    return history;
  }

  // Returns the prefix of the keys for the next rendezvous of the group.
  std::string next_prefix(const std::string& group, const c10::intrusive_ptr<c10d::Store>& store) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = entries_.try_emplace(group, Entry{Weak(store), 0, {}});
    if (!is_new && found->second.store.lock() != store) {
      found->second = {Weak(store), 0, {}};
    }
    return "symmetric_memory/" + group + "/" + std::to_string(++found->second.number) + "/";
  }

  // Stores the second phase of this rendezvous and returns that of the previous rendezvous.
  Phase exchange_last(const std::string& group, Phase last) {
    const std::lock_guard lock(mutex_);
    return std::exchange(entries_.at(group).last, std::move(last));
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10d::Store>;
  struct Entry {
    Weak store;
    uint64_t number;
    Phase last;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // indexed by the name of the group
};

class Rendezvous {
 public:
  Rendezvous(const SymmetricPiece& mine, std::string group)
      : mine_(mine),
        members_(members_of(group)),
        client_(separate_client(members_.store)),
        prefix_(History::get().next_prefix(group, members_.store)) {
    peers_.group = std::move(group);
    peers_.rank = members_.rank;
    peers_.global_ranks = members_.global_ranks;
  }
  // Releases the peers if the rendezvous has failed. Otherwise run() has returned them to its
  // caller.
  ~Rendezvous() { (void)release_peers(peers_); }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  std::shared_ptr<const SymmetricPeers> run() {
    const std::string announced = prefix_ + "announced", mapped = prefix_ + "mapped";
    const RendezvousResult first = exchange(announced, announcement());
    std::vector<occlWindowMember> window(static_cast<size_t>(members_.size));
    // Check the machines before mapping anything: if a rank is on another machine, the rendezvous
    // fails, and the ranks free their memory.
    std::string failed = find_other_machine(first.notes);
    for (int peer = 0; peer < members_.size && failed.empty(); ++peer) {
      failed =
          connect(peer, first.notes[static_cast<size_t>(peer)], window[static_cast<size_t>(peer)]);
    }
    const occlWindowConfig_t config{mine_.buffer_bytes, mine_.pad_bytes, members_.timeout.count()};
    if (failed.empty() && occlWindowCreate(&peers_.window, members_.size, members_.rank,
                                           window.data(), &config) != occlSuccess) {
      failed = occlGetLastError();
    }
    // In the second phase, each rank reports either that it has mapped everything or why it cannot.
    const RendezvousResult second = exchange(mapped, failed);
    delete_rendezvous_keys(*members_.store, announced, first, members_.rank);
    if (const History::Phase before = History::get().exchange_last(peers_.group, {mapped, second});
        !before.prefix.empty()) {
      delete_rendezvous_keys(*members_.store, before.prefix, before.result, members_.rank);
    }
    for (const std::string& text : second.notes) {
      TORCH_CHECK_WITH(DistBackendError, text.empty(), "symmetric memory: group ", peers_.group,
                       ": ", text);
    }
    auto done = std::make_shared<SymmetricPeers>(std::move(peers_));
    peers_ = {};
    return done;
  }

 private:
  RendezvousResult exchange(const std::string& prefix, const std::string& note) const {
    const HostWait wait;
    return run_rendezvous(
        *client_, prefix, members_.rank, members_.size, note, members_.timeout,
        "symmetric memory of group " + peers_.group + ", rank " + std::to_string(members_.rank));
  }

  std::string announcement() const {
    Announcement announcement{mine_.buffer_bytes,
                              mine_.pad_bytes,
                              static_cast<uint64_t>(mine_.device),
                              this_machine(),
                              {}};
    check_occl(occlGetProcess(&announcement.process));
    // Export on a separate stream, because the program's streams may wait for other ranks. The
    // program must order its accesses with barriers.
    const PrivateStream stream(mine_.device);
    std::vector<orIpcMemoryHandle> handles(static_cast<size_t>(members_.size));
    for (int peer = 0; peer < members_.size; ++peer) {
      if (peer != members_.rank) {
        OPENREG_CHECK(orIpcExport(&handles[static_cast<size_t>(peer)], mine_.base, mine_.bytes(),
                                  stream.get()));
      }
    }
    const auto bytes = [](const auto* data, size_t count) {
      return std::string(reinterpret_cast<const char*>(data), count * sizeof(*data));
    };
    return bytes(&announcement, 1) + bytes(handles.data(), handles.size());
  }

  Announcement read(int peer, const std::string& note) const {
    TORCH_CHECK_WITH(DistBackendError,
                     note.size() == sizeof(Announcement) + static_cast<size_t>(members_.size) *
                                                               sizeof(orIpcMemoryHandle),
                     "symmetric memory: group ", peers_.group, ": rank ", peer,
                     " uses a different version of torch_openreg or a different number of ranks");
    Announcement announcement;
    std::memcpy(&announcement, note.data(), sizeof(announcement));
    return announcement;
  }

  // Returns an error text if a rank is on another machine; otherwise returns an empty string.
  std::string find_other_machine(const std::vector<std::string>& notes) const {
    for (int peer = 0; peer < members_.size; ++peer) {
      if (read(peer, notes[static_cast<size_t>(peer)]).machine != this_machine()) {
        return cannot_map(peer) +
               "it is on another machine: symmetric memory needs all ranks on one machine";
      }
    }
    return "";
  }

  // Maps the memory of rank `peer` and stores its description in `member`. Returns an error text,
  // or an empty string on success.
  std::string connect(int peer, const std::string& note, occlWindowMember& member) {
    const Announcement announcement = read(peer, note);
    if (announcement.buffer_bytes != mine_.buffer_bytes ||
        announcement.pad_bytes != mine_.pad_bytes) {
      return sizes(members_.rank, mine_.buffer_bytes, mine_.pad_bytes) + ", " +
             sizes(peer, announcement.buffer_bytes, announcement.pad_bytes) +
             ": all ranks of a group must allocate the same size";
    }
    void* base = mine_.base;
    if (peer != members_.rank) {
      if (std::string failed = map(peer, note, announcement, &base); !failed.empty()) {
        return failed;
      }
    }
    auto* const start = static_cast<char*>(base);
    peers_.buffers.push_back(start);
    peers_.signal_pads.push_back(start + mine_.pad_offset());
    member = {announcement.process, start, start + mine_.pad_offset(),
              start + mine_.state_offset()};
    return "";
  }

  std::string cannot_map(int peer) const {
    return "rank " + std::to_string(members_.rank) + " cannot map the memory of rank " +
           std::to_string(peer) + ": ";
  }

  static std::string sizes(int rank, uint64_t buffer, uint64_t pad) {
    return "rank " + std::to_string(rank) + " has " + std::to_string(buffer) +
           " bytes and a signal pad of " + std::to_string(pad);
  }

  std::string map(int peer, const std::string& note, const Announcement& announcement,
                  void** base) {
    // Import on a stream of the device that owns the memory, because the driver requires this.
    const auto device = static_cast<c10::DeviceIndex>(announcement.device);
    if (announcement.device >= static_cast<uint64_t>(device_count())) {
      return cannot_map(peer) + "it is on device " + std::to_string(announcement.device) +
             ", but rank " + std::to_string(members_.rank) + " has only " +
             std::to_string(device_count()) + " devices";
    }
    orIpcMemoryHandle handle;
    std::memcpy(
        &handle,
        note.data() + sizeof(announcement) + static_cast<size_t>(members_.rank) * sizeof(handle),
        sizeof(handle));
    const PrivateStream stream(device);
    if (orIpcImport(base, &handle, stream.get()) != orSuccess) {
      return cannot_map(peer) + orGetLastErrorDetail();
    }
    peers_.imports.emplace_back(*base, device);
    return "";
  }

  const SymmetricPiece mine_;
  const Members members_;
  const c10::intrusive_ptr<c10d::Store> client_;
  const std::string prefix_;
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
    // No queued work uses the memory any longer, so release it on any stream.
    if (orGetDefaultStream(&stream, device) == orSuccess) {
      (void)orIpcRelease(pointer, stream);
    }
  }
  return true;
}

}  // namespace openreg
