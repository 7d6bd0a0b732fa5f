// SPDX-License-Identifier: BSD-3-Clause
//
// rendezvous.h - the ranks of a group find each other by its store, and learn who shares a machine.
//
// The store may have what dead processes have left: torchrun gives all attempts of a program one
// store. So every rank brings a number that nobody else has, and rank 0 says which numbers it has
// seen. A rank agrees if its own is among them, and rank 0 goes on when all have agreed to the
// same.
//
// Stateless. Threads: any; one rendezvous of a store and prefix at a time.
#ifndef DISTRIBUTED_RENDEZVOUS_H_
#define DISTRIBUTED_RENDEZVOUS_H_

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace openreg {

struct Meeting {
  // Different for each rendezvous: keys behind it are of these ranks alone.
  std::string prefix;
  // What each rank has brought.
  std::vector<std::string> notes;
};

// Waits until all ranks have come. `what` is for the error of a rank that is late.
Meeting meet(c10d::Store& store, const std::string& prefix, int rank, int size,
             const std::string& note, std::chrono::milliseconds timeout, const std::string& what);

// Deletes what this rank has put into the store, when all ranks have left the rendezvous.
void forget(c10d::Store& store, const std::string& prefix, const Meeting& meeting, int rank);

}  // namespace openreg

#endif  // DISTRIBUTED_RENDEZVOUS_H_
