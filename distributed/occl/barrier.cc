// SPDX-License-Identifier: BSD-3-Clause
//
// Barriers: how the ranks of a communicator meet.
#include "distributed/occl/communicator.h"

namespace openreg::occl {

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

}  // namespace openreg::occl
