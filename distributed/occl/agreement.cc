// SPDX-License-Identifier: BSD-3-Clause
//
// The check that all ranks of a communicator called the same operation, and the names of ranks and
// operations in messages.
#include <algorithm>
#include <string>

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
