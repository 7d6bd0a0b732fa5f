// SPDX-License-Identifier: BSD-3-Clause
//
// symmetric_rendezvous.h - exchanges the handles of the ranks' memory. Each rank announces its own
// handles in the group's store, maps the memory that the other ranks announce, and waits until all
// ranks have mapped all memory. Any thread may call these functions, but only one thread at a time
// for each group.
#ifndef DISTRIBUTED_SYMMETRIC_RENDEZVOUS_H_
#define DISTRIBUTED_SYMMETRIC_RENDEZVOUS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "distributed/symmetric_memory.h"

namespace openreg {

// The memory that this rank contributes. It contains the buffer, the signal pad and the window's
// state.
struct SymmetricPiece {
  void* base;
  size_t buffer_bytes;
  size_t pad_bytes;
  c10::DeviceIndex device;

  size_t pad_offset() const { return (buffer_bytes + 63) / 64 * 64; }
  size_t state_offset() const { return pad_offset() + (pad_bytes + 63) / 64 * 64; }
  size_t bytes() const { return state_offset() + OCCL_WINDOW_STATE_BYTES; }
};

// Shares `mine` with the ranks in `group` and maps their memory. Waits for all ranks, but at most
// for the group's timeout. Throws a DistBackendError that names the rank that is late, has failed,
// or has allocated a different size.
std::shared_ptr<const SymmetricPeers> rendezvous_pieces(const SymmetricPiece& mine,
                                                        const std::string& group);

// Releases the result of rendezvous_pieces(). If an operation is running, releases nothing and
// returns false; the caller must then retry.
bool release_peers(const SymmetricPeers& peers) noexcept;

}  // namespace openreg

#endif  // DISTRIBUTED_SYMMETRIC_RENDEZVOUS_H_
