// SPDX-License-Identifier: BSD-3-Clause
//
// rendezvous.h - a meeting of a group's ranks in the group's store, where they exchange notes.
//
// The store may contain keys from exited processes: torchrun uses one store for all attempts to run
// a program. Each rank therefore publishes a unique number, and rank 0 publishes the numbers that
// it has seen. A rank agrees if its own number is among them. Rank 0 continues when all ranks have
// agreed to the same list.
//
// The functions keep no state. Any thread may call them, but there may be only one rendezvous for a
// store and prefix at a time.
#ifndef DISTRIBUTED_RENDEZVOUS_H_
#define DISTRIBUTED_RENDEZVOUS_H_

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace openreg {

struct RendezvousResult {
  // The prefix of this rendezvous's keys. It is unique: no other rendezvous uses keys that start
  // with it.
  std::string prefix;
  // The notes, indexed by rank.
  std::vector<std::string> notes;
};

// Publishes `note`, waits until all ranks have arrived, and returns their notes. `what` names the
// purpose in the error about a late rank.
RendezvousResult run_rendezvous(c10d::Store& store, const std::string& prefix, int rank, int size,
                                const std::string& note, std::chrono::milliseconds timeout,
                                const std::string& what);

// Deletes this rank's keys. Call it when all ranks have left the rendezvous.
void delete_rendezvous_keys(c10d::Store& store, const std::string& prefix,
                            const RendezvousResult& result, int rank);

}  // namespace openreg

#endif  // DISTRIBUTED_RENDEZVOUS_H_
