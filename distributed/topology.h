// SPDX-License-Identifier: BSD-3-Clause
//
// topology.h - the assignment of a group's ranks to machines. The types are plain values.
#ifndef DISTRIBUTED_TOPOLOGY_H_
#define DISTRIBUTED_TOPOLOGY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace openreg {

// Returns a string that is equal on all ranks that can share memory. It identifies the machine, the
// user, and the process and network namespaces. If OPENREG_HOST_ID is set, it replaces the
// machine's own id.
std::string machine_identity();

struct Topology {
  Topology(const std::vector<std::string>& identities, int rank);

  // The ranks on each machine. Machines are ordered by their first rank, which is the machine's
  // leader.
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
  // Return the machine of a rank, and the position of the rank on this machine.
  size_t machine_of(int rank) const;
  int position_of(int rank) const;
};

}  // namespace openreg

#endif  // DISTRIBUTED_TOPOLOGY_H_
