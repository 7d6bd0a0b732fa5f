// SPDX-License-Identifier: BSD-3-Clause
//
// topology.h - which ranks of a group are on which machine. Plain values; threads: any.
#ifndef DISTRIBUTED_TOPOLOGY_H_
#define DISTRIBUTED_TOPOLOGY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace openreg {

// Returns a string that is equal on ranks that can share memory: the machine, the user, and the
// namespaces of processes and network. OPENREG_HOST_ID replaces the machine's own id.
std::string machine_identity();

struct Topology {
  Topology(const std::vector<std::string>& identities, int rank);

  // The ranks of each machine. Machines are in the order of their first ranks, their leaders.
  std::vector<std::vector<int>> machines;
  size_t machine = 0;   // index of this rank's machine
  size_t position = 0;  // index of this rank on its machine

  const std::vector<int>& local() const { return machines[machine]; }
  int rank() const { return local()[position]; }
  bool leads() const { return position == 0; }
  int leader(int64_t machine) const { return machines[static_cast<size_t>(machine)][0]; }
  int ranks() const;
  // Returns the largest number of ranks on one machine.
  int64_t most() const;
  // Return the machine of a rank, and its position there.
  size_t machine_of(int rank) const;
  int position_of(int rank) const;
};

}  // namespace openreg

#endif  // DISTRIBUTED_TOPOLOGY_H_
