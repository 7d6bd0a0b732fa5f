// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace openreg {

std::string machine_identity() {
  std::string identity;
  if (const char* const id = std::getenv("OPENREG_HOST_ID"); id != nullptr && *id != '\0') {
    identity = id;
  } else {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, identity);
  }
  identity += " " + std::to_string(geteuid());
  // Processes identify each other by process id, so they must share a pid namespace. A container
  // with its own network counts as a separate machine.
  for (const char* const space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    std::error_code error;
    identity += " " + std::filesystem::read_symlink(space, error).string();
  }
  return identity;
}

Topology::Topology(const std::vector<std::string>& identities, int rank) {
  std::vector<std::string> known;
  for (size_t other = 0; other < identities.size(); ++other) {
    const auto found = std::find(known.begin(), known.end(), identities[other]);
    const auto index = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(identities[other]);
      machines.emplace_back();
    }
    if (static_cast<int>(other) == rank) {
      machine = index;
      position = machines[index].size();
    }
    machines[index].push_back(static_cast<int>(other));
  }
}

int Topology::ranks() const {
  size_t all = 0;
  for (const std::vector<int>& ranks : machines) {
    all += ranks.size();
  }
  return static_cast<int>(all);
}

int64_t Topology::most() const {
  size_t most = 0;
  for (const std::vector<int>& ranks : machines) {
    most = std::max(most, ranks.size());
  }
  return static_cast<int64_t>(most);
}

size_t Topology::machine_of(int rank) const {
  const auto has = [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  return static_cast<size_t>(std::find_if(machines.begin(), machines.end(), has) -
                             machines.begin());
}

int Topology::position_of(int rank) const {
  const std::vector<int>& ranks = machines[machine_of(rank)];
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace openreg
