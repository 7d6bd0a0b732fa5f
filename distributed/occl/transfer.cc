// SPDX-License-Identifier: BSD-3-Clause
//
// transfer.cc - matches a batch's sends and receives with those of other ranks.
#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "distributed/occl/batch.h"
#include "distributed/occl/data_type.h"

namespace openreg::occl {

bool Batch::Post(Transfer& transfer) {
  Communicator& all = *communicator_;
  const Request& request = transfer.step->request;
  const std::lock_guard lock(all.mailbox_mutex());
  Mailbox* const row = all.Mailboxes(all.rank(), request.peer);
  for (int i = 0; i < kMailboxes; ++i) {
    if (row[i].state.load(std::memory_order_acquire) == Mailbox::kFree) {
      transfer.mailbox = &row[i];
      row[i].tag = request.tag;
      row[i].type = request.type;
      row[i].count = request.count;
      row[i].place = transfer.step->send.place;
      row[i].number = all.NextMessage(request.peer);
      row[i].state.store(Mailbox::kPosted, std::memory_order_seq_cst);
      all.Notify();
      return true;
    }
  }
  return false;
}

bool Batch::Receive(Transfer& transfer, int sender, Status* status) {
  Communicator& all = *communicator_;
  const Step& step = *transfer.step;
  Mailbox* const row = all.Mailboxes(sender, all.rank());
  Mailbox* found = nullptr;
  std::unique_lock lock(all.receive_mutex());
  for (int i = 0; i < kMailboxes; ++i) {
    if (row[i].state.load(std::memory_order_acquire) == Mailbox::kPosted &&
        row[i].tag == step.request.tag && (found == nullptr || row[i].number < found->number)) {
      found = &row[i];
    }
  }
  if (found == nullptr) {
    return false;
  }
  found->state.store(Mailbox::kClaimed, std::memory_order_relaxed);
  lock.unlock();
  if (found->type != step.request.type || found->count != step.request.count) {
    *status =
        Error(occlInvalidUsage, all.Name(sender) + " sends " + TypeName(found->type) + "[" +
                                    std::to_string(found->count) + "] with tag " +
                                    std::to_string(found->tag) + ", but " + all.Name(all.rank()) +
                                    " receives " + TypeName(step.request.type) + "[" +
                                    std::to_string(step.request.count) + "]");
    return true;
  }
  if (step.block != 0) {
    Move(step.receive.view, all.Memory(sender, found->place), step.block);
  }
  if (step.request.source != nullptr) {
    *step.request.source = sender;
  }
  found->state.store(Mailbox::kTaken, std::memory_order_seq_cst);
  all.Notify();
  transfer.done = true;
  return true;
}

// Advances a transfer by one step if possible. Returns whether it advanced.
bool Batch::Advance(Transfer& transfer, Status* status) {
  const Request& request = transfer.step->request;
  Communicator& all = *communicator_;
  if (request.operation == Operation::kSend) {
    if (transfer.mailbox == nullptr) {
      return Post(transfer);
    }
    if (transfer.mailbox->state.load(std::memory_order_acquire) == Mailbox::kTaken) {
      transfer.mailbox->state.store(Mailbox::kFree, std::memory_order_seq_cst);
      transfer.done = true;
      return true;
    }
    return false;
  }
  if (request.peer != occlAnyRank) {
    return Receive(transfer, request.peer, status);
  }
  for (int sender = 0; sender < all.ranks(); ++sender) {
    if (Receive(transfer, sender, status)) {
      return true;
    }
  }
  return false;
}

Status Batch::RunTransfers(std::vector<Transfer> transfers) {
  Communicator& all = *communicator_;
  const Clock::time_point deadline = all.Deadline();
  if (const Status ended = all.Ended(); !ended.ok()) {
    return ended;
  }
  for (const Transfer& transfer : transfers) {
    const Buffer& send = transfer.step->send;
    if (send.bounce != nullptr) {
      Move(send.view, send.original, send.bytes);
    }
  }
  Status failed;
  const Transfer* waiting = nullptr;
  // Advances the transfers in order, because a receive must not overtake an earlier one with the
  // same rank and tag.
  const auto advance = [&] {
    bool moved = true;
    while (moved && failed.ok()) {
      moved = false;
      waiting = nullptr;
      for (size_t i = 0; i < transfers.size() && failed.ok(); ++i) {
        Transfer& transfer = transfers[i];
        if (transfer.done) {
          continue;
        }
        const Request& request = transfer.step->request;
        const bool behind =
            std::any_of(transfers.begin(), transfers.begin() + static_cast<ptrdiff_t>(i),
                        [&](const Transfer& before) {
                          const Request& other = before.step->request;
                          return !before.done && before.mailbox == nullptr &&
                                 other.operation == request.operation && other.tag == request.tag &&
                                 (other.peer == request.peer || other.peer == occlAnyRank ||
                                  request.peer == occlAnyRank);
                        });
        if (!behind && Advance(transfer, &failed)) {
          moved = true;
        }
        if (!transfer.done && waiting == nullptr) {
          waiting = &transfer;
        }
      }
    }
    return waiting == nullptr || !failed.ok();
  };
  const auto what = [&] {
    const Request& request = waiting->step->request;
    const std::string peer = request.peer == occlAnyRank ? "any rank" : all.Name(request.peer);
    const bool sends = request.operation == Operation::kSend;
    const std::string message = "message with tag " + std::to_string(request.tag);
    return sends ? peer + " did not receive the " + message
                 : "no " + message + " arrived from " + peer;
  };
  const Status status = all.WaitUntil(
      advance, [&] { return waiting != nullptr ? waiting->step->request.peer : -1; }, deadline,
      what);
  if (!failed.ok()) {
    return all.End(failed.result, failed.text);
  }
  return status.ok() ? status : all.End(status.result, status.text);
}

}  // namespace openreg::occl
