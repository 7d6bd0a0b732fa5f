// SPDX-License-Identifier: BSD-3-Clause
//
// rendezvous.h - a rendezvous of a group's ranks, which exchange notes through the group's store.
//
// The store may contain keys of exited processes, because torchrun uses one store for all attempts
// to run a program. Therefore each rank publishes a unique number, and rank 0 publishes the list of
// numbers that it has seen. A rank agrees if the list contains its own number. Rank 0 continues
// when all ranks have agreed to the same list.
//
// The functions are stateless. Any thread may call them, but there may be only one rendezvous at a
// time for each store and prefix.
#ifndef DISTRIBUTED_RENDEZVOUS_H_
#define DISTRIBUTED_RENDEZVOUS_H_

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace openreg {

// Returns a client of the same store for calls that wait. A TCPStore serves one call at a time, so
// a call that waits for another rank would block the calls of other threads. The other rank may be
// waiting for one of these. A store that is implemented in Python and has no clone() is returned
// itself.
c10::intrusive_ptr<c10d::Store> separate_client(const c10::intrusive_ptr<c10d::Store>& store);

struct RendezvousResult {
  // The prefix of this rendezvous's keys. It is unique: the keys of other rendezvous have different
  // prefixes.
  std::string prefix;
  // The notes, indexed by rank.
  std::vector<std::string> notes;
};

// Publishes `note`, waits until all ranks have arrived, and returns their notes. If a rank is late,
// the error contains `what`, which describes the purpose of the rendezvous.
RendezvousResult run_rendezvous(c10d::Store& store, const std::string& prefix, int rank, int size,
                                const std::string& note, std::chrono::milliseconds timeout,
                                const std::string& what);

// Deletes this rank's keys. Must be called after all ranks have finished the rendezvous.
void delete_rendezvous_keys(c10d::Store& store, const std::string& prefix,
                            const RendezvousResult& result, int rank);

}  // namespace openreg

#endif  // DISTRIBUTED_RENDEZVOUS_H_
