// SPDX-License-Identifier: BSD-3-Clause
//
// Barriers of a communicator's ranks, and the check that all ranks called the same operation.
#include <algorithm>

#include "distributed/occl/communicator.h"
#include "distributed/occl/data_type.h"

namespace openreg::occl {
namespace {

const char* OperationName(Operation operation) {
  switch (operation) {
    case Operation::kNone:
      return "nothing";
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kReduce:
      return "reduce";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kAllToAll:
      return "all-to-all";
    case Operation::kGather:
      return "gather";
    case Operation::kScatter:
      return "scatter";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kSend:
      return "send";
    case Operation::kReceive:
      return "receive";
    case Operation::kSplit:
      return "split";
    case Operation::kSuspend:
      return "suspend";
  }
  return "unknown operation";
}

const char* OpName(occlRedOp_t op) {
  static constexpr const char* kNames[] = {"sum",     "product", "maximum", "minimum",
                                           "average", "and",     "or",      "xor"};
  return op < occlNumOps ? kNames[op] : "scaled sum";
}

bool Agree(const Descriptor& one, const Descriptor& other) {
  return one.operation == other.operation && one.type == other.type && one.op == other.op &&
         one.root == other.root && one.count == other.count;
}

}  // namespace

int Communicator::Label(int rank) const {
  return labels_.empty() ? rank : labels_[static_cast<size_t>(rank)];
}

std::string Communicator::Name(int rank) const { return "rank " + std::to_string(Label(rank)); }

std::string Communicator::Describe(const Descriptor& descriptor) const {
  std::string text = OperationName(descriptor.operation);
  if (descriptor.operation == Operation::kBarrier || descriptor.operation == Operation::kSplit ||
      descriptor.operation == Operation::kSuspend) {
    return text;
  }
  text += std::string(" of ") + TypeName(descriptor.type) + "[" + std::to_string(descriptor.count) +
          "]";
  if (descriptor.operation == Operation::kAllReduce || descriptor.operation == Operation::kReduce ||
      descriptor.operation == Operation::kReduceScatter) {
    text += std::string(", ") + OpName(descriptor.op);
  }
  if (descriptor.root >= 0) {
    text += ", root " + std::to_string(Label(descriptor.root));
  }
  return text;
}

std::string Communicator::DescribeLate(int rank) const {
  return Name(rank) + " did not reach the " +
         OperationName(segment()->states[rank_].descriptors[barriers_ % 2].operation);
}

Status Communicator::Arrive(Clock::time_point deadline) {
  const uint64_t barrier = ++barriers_;
  segment()->states[rank_].arrived.store(barrier, std::memory_order_seq_cst);
  // The last rank to arrive wakes the sleeping ranks. A spinning rank may already be at the next
  // barrier.
  if (segment()->arrivals.fetch_add(1) + 1 >= barrier * static_cast<uint64_t>(ranks_)) {
    Notify();
  }
  int missed = 0;
  const auto all_arrived = [&] {
    for (; missed < ranks_; ++missed) {
      if (segment()->states[missed].arrived.load(std::memory_order_acquire) < barrier) {
        return false;
      }
    }
    return true;
  };
  return WaitUntil(
      all_arrived, [&] { return missed < ranks_ ? missed : -1; }, deadline,
      [&] { return DescribeLate(missed); });
}

Status Communicator::CheckedBarrier(const Descriptor& mine, Clock::time_point deadline) {
  if (const Status ended = Ended(); !ended.ok()) {
    return ended;
  }
  segment()->states[rank_].descriptors[(barriers_ + 1) % 2] = mine;
  if (const Status status = Arrive(deadline); !status.ok()) {
    return End(status.result, status.text);
  }
  if (const Status status = CheckAgreement(mine); !status.ok()) {
    return End(status.result, status.text);
  }
  return {};
}

Status Communicator::Barrier(Clock::time_point deadline) {
  // Copy the descriptor to the slot of the next barrier, so that a rank that reads it after that
  // barrier finds the operation in progress.
  RankState& state = segment()->states[rank_];
  state.descriptors[(barriers_ + 1) % 2] = state.descriptors[barriers_ % 2];
  const Status status = Arrive(deadline);
  return status.ok() ? status : End(status.result, status.text);
}

Status Communicator::CheckAgreement(const Descriptor& mine) const {
  for (int other = 0; other < ranks_; ++other) {
    const Descriptor& theirs = LastDescriptor(other);
    if (!Agree(mine, theirs)) {
      const int first = std::min(rank_, other), second = std::max(rank_, other);
      return Error(occlInvalidUsage, "ranks called different operations: " + Name(first) +
                                         " called " + Describe(first == rank_ ? mine : theirs) +
                                         ", but " + Name(second) + " called " +
                                         Describe(second == rank_ ? mine : theirs));
    }
  }
  return {};
}

}  // namespace openreg::occl
