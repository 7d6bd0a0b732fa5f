// SPDX-License-Identifier: BSD-3-Clause
//
// segment.h - the memory that all ranks of a communicator share.
//
// It is an anonymous file (openreg_emulation.h, "files of other processes"), initially zero, whose
// pages are allocated when they are first used. It contains no pointers. A rank writes only to its
// own RankState, its own slots and the mailboxes of its messages, except that the first rank that
// finds the communicator broken writes `failure`.
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
inline constexpr int kMailboxes = 8;  // limit on messages in progress from one rank to another
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

// Describes a rank's operation. Ranks must agree on all members except `send`, `receive` and
// `scale`.
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
  orIpcFileHandle device;         // the file with its device's memory
  std::atomic<uint64_t> arrived;  // number of barriers that the rank has reached
  Descriptor descriptors[2];      // for even and for odd barriers
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

// The reason why the communicator has failed, and the rank that found it.
struct Failure {
  enum : uint32_t { kNone, kBeingWritten, kWritten };
  std::atomic<uint32_t> state;
  int32_t rank;
  occlResult_t result;
  char text[kTextBytes];
};

struct Segment {
  // Ranks register here before they map anything else.
  std::atomic<uint32_t> ranks;  // the number of ranks, set by the first one
  std::atomic<uint32_t> joined;

  // Notified whenever anything in the segment has changed that a rank may be waiting for.
  alignas(64) EventCount changes;

  alignas(64) std::atomic<uint64_t> arrivals;  // arrivals at barriers, summed over the ranks
  Failure failure;
  RankState states[kMaxRanks];
  Mailbox mailboxes[kMaxRanks][kMaxRanks][kMailboxes];  // indexed by sender and receiver
  alignas(4096) unsigned char slots[kMaxRanks][2][kSlotBytes];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free,
              "atomics that processes share must be lock-free");

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_SEGMENT_H_
