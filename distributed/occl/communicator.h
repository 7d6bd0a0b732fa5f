// SPDX-License-Identifier: BSD-3-Clause
//
// communicator.h - one rank's end of a communicator: what it shares with the others, how it meets
// them, and why it is over.
//
// Owned by its handle and by each batch of operations that is enqueued. Calls of the API come from
// one thread at a time, except Abort; the functions for kernels are called by the threads that run
// the batches, one batch of collectives at a time (RunLock).
#ifndef DISTRIBUTED_OCCL_COMMUNICATOR_H_
#define DISTRIBUTED_OCCL_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "distributed/occl/error.h"
#include "distributed/occl/segment.h"

namespace openreg::occl {

using Clock = std::chrono::steady_clock;

// A file of another process, mapped.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile() { Reset(); }
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  Status Create(size_t size, orIpcFileHandle* handle);
  Status Map(const orIpcFileHandle& handle);
  unsigned char* memory() const { return memory_; }
  size_t size() const { return size_; }

 private:
  void Reset();
  unsigned char* memory_ = nullptr;
  size_t size_ = 0;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // The segment of a communicator to be, which this process keeps until all ranks have joined.
  static Status MakeId(occlUniqueId* id);

  // Joins, and waits for the others.
  static Status Join(const occlUniqueId& id, int ranks, int rank, const occlConfig_t& config,
                     std::shared_ptr<Communicator>* joined);
  ~Communicator();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  // As messages have it: "rank 3".
  std::string Name(int rank) const;
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout.count(); }

  // Fails in the child of a fork.
  Status CheckProcess() const;

  // ------------------------------------------------------------------------ for kernels

  // When a wait that begins now is too late.
  Clock::time_point Deadline() const;

  // Says what this rank is about to do, comes to a barrier, and waits until all have come. Fails
  // if they do not want the same. `data` of this rank's slot goes along.
  Status Meet(const Descriptor& mine, Clock::time_point deadline);
  // A barrier within an operation.
  Status MeetAgain(Clock::time_point deadline);

  // Of the barrier that is next (to write one's own) or was last (to read).
  unsigned char* NextSlot() { return segment()->slots[rank_][(barriers_ + 1) % 2]; }
  const unsigned char* LastSlot(int rank) const { return segment()->slots[rank][barriers_ % 2]; }
  const Descriptor& LastDescriptor(int rank) const {
    return segment()->states[rank].descriptors[barriers_ % 2];
  }
  // A place in the memory of a rank's device.
  const unsigned char* Memory(int rank, uint64_t place) const {
    return devices_[static_cast<size_t>(rank)].memory() + place;
  }

  // Waits for what other ranks do; `who` gives a rank that is missed, or -1. Fails if that rank
  // has ended or left, if the communicator is over, or at the deadline, which says `what`.
  Status WaitUntil(const std::function<bool()>& done, const std::function<int()>& who,
                   Clock::time_point deadline, const std::function<std::string()>& what);
  void Ring() { segment()->bell.Ring(); }

  Mailbox* Mailboxes(int sender, int receiver) const {
    return segment()->mailboxes[sender][receiver];
  }
  uint64_t NextMessage(int receiver) { return ++messages_[static_cast<size_t>(receiver)]; }
  std::mutex& mailbox_mutex() { return mailbox_mutex_; }
  // Held while a thread of this rank looks for a message and claims it.
  std::mutex& receive_mutex() { return receive_mutex_; }
  std::mutex& run_mutex() { return run_mutex_; }

  // ------------------------------------------------------------------------ its end

  // Ends it for all ranks, if nobody has, and returns the reason.
  Status End(occlResult_t result, const std::string& text);
  // Success, or why it is over.
  Status Ended() const;
  void Leave();

  // ------------------------------------------------------------------------ for the API

  // Operations of this communicator that are enqueued and not done.
  void BeginBatch() { batches_.fetch_add(1, std::memory_order_relaxed); }
  void EndBatch() { batches_.fetch_sub(1, std::memory_order_release); }
  // A kernel cannot give memory back: what it is done with waits here for the next call.
  void AddFinished(void* batch, void (*drop)(void*));
  void DropFinished();
  bool Idle() const { return batches_.load(std::memory_order_acquire) == 0; }

  // Before and after a batch: with `in_order`, has `stream` wait for the batch before, if that was
  // on another stream. What is captured runs later, at a time that is the program's to order.
  Status Follow(orStream_t stream, bool in_order);
  Status Done(orStream_t stream);
  // Whether the batch since Follow goes into a graph.
  bool captured() const { return captured_; }

  occlRedOp_t AddScale(occlDataType_t type, const unsigned char* scalar);
  bool RemoveScale(occlRedOp_t op);
  const unsigned char* FindScale(occlRedOp_t op, occlDataType_t* type) const;

 private:
  struct Scale {
    occlDataType_t type;
    unsigned char bytes[16];
  };

  Communicator() = default;
  Segment* segment() const { return reinterpret_cast<Segment*>(file_.memory()); }
  Status Arrive(Clock::time_point deadline);
  Status CheckAgreement(const Descriptor& mine) const;
  std::string Late(int rank) const;
  int Label(int rank) const;
  // "all-reduce of float32[8], sum".
  std::string Describe(const Descriptor& descriptor) const;

  int rank_ = 0;
  int ranks_ = 0;
  int device_ = 0;
  int process_ = 0;
  std::vector<int> labels_;
  std::atomic<int64_t> timeout_{0};  // milliseconds

  MappedFile file_;
  std::vector<MappedFile> devices_;

  std::mutex run_mutex_;
  uint64_t barriers_ = 0;  // that this rank has come to; under run_mutex_
  std::mutex mailbox_mutex_;
  std::mutex receive_mutex_;
  std::vector<uint64_t> messages_;  // sent to each rank; under mailbox_mutex_

  std::atomic<uint64_t> batches_{0};
  std::mutex finished_mutex_;
  std::vector<std::pair<void*, void (*)(void*)>> finished_;
  orStream_t last_stream_ = nullptr;
  orEvent_t last_event_ = nullptr;
  bool followed_ = false;  // there was a batch
  bool captured_ = false;
  std::map<int, Scale> scales_;
  int next_scale_ = occlNumOps;
};

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_COMMUNICATOR_H_
