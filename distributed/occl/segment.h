// SPDX-License-Identifier: BSD-3-Clause
//
// segment.h - the memory that all ranks of a communicator share.
//
// The segment is an anonymous file (openreg_emulation.h, "files of other processes"). It is
// initially zero, and its pages are allocated at their first use. It contains no pointers. A rank
// writes only to its own RankState, its own slots and the mailboxes of its messages. The exception
// is `failure`, which the first rank that detects a failure writes.
#ifndef DISTRIBUTED_OCCL_SEGMENT_H_
#define DISTRIBUTED_OCCL_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "distributed/occl/event_count.h"
#include "distributed/occl/occl.h"
#include "runtime/device/openreg_emulation.h"

namespace openreg::occl {

inline constexpr int kMaxRanks = OCCL_MAX_RANKS;
inline constexpr size_t kSlotBytes = size_t{64} << 10;
inline constexpr int kMailboxes = 8;  // maximum number of pending messages from one rank to another
inline constexpr size_t kTextBytes = 512;

enum class Operation : uint32_t {
  kNone,
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kSend,
  kReceive,
  kSplit,
  kSuspend,
};

// Describes a rank's operation. All members except `send`, `receive` and `scale` must be equal on
// all ranks.
struct Descriptor {
  Operation operation;
  occlDataType_t type;
  occlRedOp_t op;  // occlNumOps for a sum of scaled values
  int32_t root;
  uint64_t count;
  uint64_t send;  // offset in the file of the rank's device
  uint64_t receive;
  unsigned char scale[16];  // a value of `type`, or zeros if not scaled
};

struct alignas(64) RankState {
  enum : uint32_t { kAbsent, kJoined, kLeft };
  std::atomic<uint32_t> presence;
  orIpcFileHandle device;         // the file that contains the memory of the rank's device
  std::atomic<uint64_t> arrived;  // number of barriers that the rank has reached
  Descriptor descriptors[2];      // one for even and one for odd barriers
};

// A message that is waiting for its receiver.
struct alignas(64) Mailbox {
  enum : uint32_t { kFree, kPosted, kClaimed, kTaken };
  std::atomic<uint32_t> state;
  int32_t tag;
  occlDataType_t type;
  uint64_t number;  // index among the messages of this sender to this receiver
  uint64_t count;
  uint64_t place;  // offset in the file of the sender's device
};

// The reason why the communicator has failed, and the rank that detected the failure.
struct Failure {
  enum : uint32_t { kNone, kBeingWritten, kWritten };
  std::atomic<uint32_t> state;
  int32_t rank;
  occlResult_t result;
  char text[kTextBytes];
};

struct Segment {
  // Ranks register in these members before they map anything else.
  std::atomic<uint32_t> ranks;  // the number of ranks, set by the first one
  std::atomic<uint32_t> joined;

  // Notified whenever something in the segment has changed for which a rank may be waiting.
  alignas(64) EventCount changes;

  alignas(64) std::atomic<uint64_t> arrivals;  // arrivals at barriers, of all ranks
  Failure failure;
  RankState states[kMaxRanks];
  Mailbox mailboxes[kMaxRanks][kMaxRanks][kMailboxes];  // indexed by sender and receiver
  alignas(4096) unsigned char slots[kMaxRanks][2][kSlotBytes];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free,
              "atomics that processes share must be lock-free");

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_SEGMENT_H_
