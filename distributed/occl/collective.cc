// SPDX-License-Identifier: BSD-3-Clause
//
// collective.cc - moves and reduces the data of a batch's collectives.
#include <algorithm>
#include <utility>

#include "distributed/occl/batch.h"
#include "distributed/occl/data_type.h"
#include "distributed/occl/reduction.h"

namespace openreg::occl {

Status Batch::RunCollective(Step& step) {
  const Clock::time_point deadline = communicator_->Deadline();
  if (step.send.bounce != nullptr) {
    Move(step.send.view, step.send.original, step.send.bytes);
  }
  if (step.request.operation == Operation::kBarrier) {
    return communicator_->CheckedBarrier(step.descriptor, deadline);
  }
  // Select the algorithm by the size of the largest part of any rank, so that all ranks select the
  // same one. In an all-reduce through slots, each rank reduces all the data.
  const int ranks = communicator_->ranks();
  const size_t blocks = step.request.operation == Operation::kAllReduce
                            ? static_cast<size_t>(ranks)
                            : std::max(SendBlocks(step.request.operation, true, ranks), size_t{1});
  const Status status =
      blocks * step.block <= kSlotBytes ? RunSmall(step, deadline) : RunLarge(step, deadline);
  if (status.ok() && step.receive.bounce != nullptr) {
    Move(step.receive.original, step.receive.view, step.receive.bytes);
  }
  return status;
}

void Batch::ReduceInto(const Step& step, const unsigned char* const* inputs, unsigned char* output,
                       size_t count) const {
  const int ranks = communicator_->ranks();
  const void* pointers[kMaxRanks];
  const void* scales[kMaxRanks];
  for (int rank = 0; rank < ranks; ++rank) {
    pointers[rank] = inputs[rank];
    scales[rank] = step.request.scaled ? communicator_->LastDescriptor(rank).scale : nullptr;
  }
  Reduce(step.request.type, step.request.op, ranks, pointers, scales, output, count);
}

// Moves the data through the slots. One barrier is sufficient: each rank alternates between two
// slots, and all ranks must pass another barrier before a slot is reused.
Status Batch::RunSmall(const Step& step, Clock::time_point deadline) {
  Communicator& all = *communicator_;
  Move(all.NextSlot(), step.send.view, step.send.bytes);
  if (const Status status = all.CheckedBarrier(step.descriptor, deadline); !status.ok()) {
    return status;
  }
  const int ranks = all.ranks(), me = all.rank(), root = step.request.root;
  unsigned char* const to = step.receive.view;
  const size_t block = step.block;
  const unsigned char* slots[kMaxRanks];
  for (int rank = 0; rank < ranks; ++rank) {
    slots[rank] = all.LastSlot(rank);
  }
  const auto mine = static_cast<size_t>(me) * block;
  switch (step.request.operation) {
    case Operation::kAllReduce:
      ReduceInto(step, slots, to, step.request.count);
      break;
    case Operation::kReduce:
      if (me == root) {
        ReduceInto(step, slots, to, step.request.count);
      }
      break;
    case Operation::kReduceScatter:
      for (int rank = 0; rank < ranks; ++rank) {
        slots[rank] += mine;
      }
      ReduceInto(step, slots, to, step.request.count);
      break;
    case Operation::kBroadcast:
      Move(to, slots[root], block);
      break;
    case Operation::kScatter:
      Move(to, slots[root] + mine, block);
      break;
    case Operation::kAllGather:
    case Operation::kGather:
      for (int rank = 0; rank < ranks && (root < 0 || me == root); ++rank) {
        Move(to + static_cast<size_t>(rank) * block, slots[rank], block);
      }
      break;
    case Operation::kAllToAll:
      for (int rank = 0; rank < ranks; ++rank) {
        Move(to + static_cast<size_t>(rank) * block, slots[rank] + mine, block);
      }
      break;
    default:
      break;
  }
  return {};
}

// Makes each rank read its data directly from the device memory of the other ranks.
Status Batch::RunLarge(const Step& step, Clock::time_point deadline) {
  Communicator& all = *communicator_;
  if (const Status status = all.CheckedBarrier(step.descriptor, deadline); !status.ok()) {
    return status;
  }
  const int ranks = all.ranks(), me = all.rank(), root = step.request.root;
  unsigned char* const to = step.receive.view;
  const size_t block = step.block;
  const auto mine = static_cast<size_t>(me) * block;
  const unsigned char* sends[kMaxRanks];
  for (int rank = 0; rank < ranks; ++rank) {
    sends[rank] = all.Memory(rank, all.LastDescriptor(rank).send);
  }
  switch (step.request.operation) {
    case Operation::kAllReduce: {
      // Each rank reduces one part and reads the other parts from the ranks that reduced them.
      const size_t size = TypeSize(step.request.type);
      const size_t part =
          (step.request.count + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks);
      const auto range = [&](int rank) {
        const size_t begin = std::min(static_cast<size_t>(rank) * part, step.request.count);
        return std::pair(begin * size,
                         std::min(begin + part, step.request.count) * size - begin * size);
      };
      const auto [begin, bytes] = range(me);
      const unsigned char* inputs[kMaxRanks];
      for (int rank = 0; rank < ranks; ++rank) {
        inputs[rank] = sends[rank] + begin;
      }
      ReduceInto(step, inputs, to + begin, bytes / size);
      if (const Status status = all.Barrier(deadline); !status.ok()) {
        return status;
      }
      for (int next = 1; next < ranks; ++next) {
        const int rank = (me + next) % ranks;
        const auto [from, length] = range(rank);
        Move(to + from, all.Memory(rank, all.LastDescriptor(rank).receive) + from, length);
      }
      break;
    }
    case Operation::kReduce:
      if (me == root) {
        ReduceInto(step, sends, to, step.request.count);
      }
      break;
    case Operation::kReduceScatter:
      for (int rank = 0; rank < ranks; ++rank) {
        sends[rank] += mine;
      }
      ReduceInto(step, sends, to, step.request.count);
      break;
    case Operation::kBroadcast:
      // Read the root's input. The root reads its own memory; if the broadcast is in place, the
      // root moves nothing.
      Move(to, me == root ? step.send.view : sends[root], block);
      break;
    case Operation::kScatter:
      Move(to, (me == root ? step.send.view : sends[root]) + mine, block);
      break;
    case Operation::kAllGather:
    case Operation::kGather:
      for (int next = 0; next < ranks && (root < 0 || me == root); ++next) {
        const int rank = (me + next) % ranks;
        Move(to + static_cast<size_t>(rank) * block, rank == me ? step.send.view : sends[rank],
             block);
      }
      break;
    case Operation::kAllToAll:
      for (int next = 0; next < ranks; ++next) {
        const int rank = (me + next) % ranks;
        Move(to + static_cast<size_t>(rank) * block,
             (rank == me ? step.send.view : sends[rank]) + mine, block);
      }
      break;
    default:
      break;
  }
  // Wait for all ranks, because no rank may change memory that another rank is still reading.
  return all.Barrier(deadline);
}

}  // namespace openreg::occl
