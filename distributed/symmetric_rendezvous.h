// SPDX-License-Identifier: BSD-3-Clause
//
// symmetric_rendezvous.h - how the ranks of a group exchange the handles of their memory: each
// announces its own in the group's store, maps what the others announce, and waits until all have
// mapped everything. Threads: any, but one at a time for each group.
#ifndef DISTRIBUTED_SYMMETRIC_RENDEZVOUS_H_
#define DISTRIBUTED_SYMMETRIC_RENDEZVOUS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "distributed/symmetric_memory.h"

namespace openreg {

// The memory that this rank gives: buffer, signal pad and window state in one piece.
struct SymmetricPiece {
  void* base;
  size_t buffer_bytes;
  size_t pad_bytes;
  c10::DeviceIndex device;

  size_t pad_offset() const { return (buffer_bytes + 63) / 64 * 64; }
  size_t state_offset() const { return pad_offset() + (pad_bytes + 63) / 64 * 64; }
  size_t bytes() const { return state_offset() + OCCL_WINDOW_STATE_BYTES; }
};

// Waits for the other ranks, for as long as the group's timeout. Throws DistBackendError with the
// rank that is late, has failed, or has allocated another size.
std::shared_ptr<const SymmetricPeers> rendezvous_pieces(const SymmetricPiece& mine,
                                                        const std::string& group);

// Gives back what rendezvous_pieces has made. False while an operation runs: to be tried again.
bool release_peers(const SymmetricPeers& peers) noexcept;

}  // namespace openreg

#endif  // DISTRIBUTED_SYMMETRIC_RENDEZVOUS_H_
