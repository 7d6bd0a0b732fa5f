// SPDX-License-Identifier: BSD-3-Clause
//
// communicator.h - one rank's part of a communicator: the memory that it shares with the other
// ranks, the synchronization with them, and the reason for a failure.
//
// The handle of a communicator and each enqueued batch of operations share its ownership. Only one
// thread at a time may call the API, except for Abort. The threads that run the batches call the
// functions for kernels; run_mutex allows one batch of collectives at a time.
#ifndef DISTRIBUTED_OCCL_COMMUNICATOR_H_
#define DISTRIBUTED_OCCL_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "distributed/occl/error.h"
#include "distributed/occl/segment.h"

namespace openreg::occl {

using Clock = std::chrono::steady_clock;

// A mapping of a shared file that any process has created. Owns the mapping.
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
  // Creates the segment of a future communicator. This process keeps it until all ranks have
  // joined.
  static Status MakeId(occlUniqueId* id);

  // Joins the communicator of `id` as `rank` and waits until all ranks have joined.
  static Status Join(const occlUniqueId& id, int ranks, int rank, const occlConfig_t& config,
                     std::shared_ptr<Communicator>* joined);
  ~Communicator();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  // Returns the name of a rank in messages, for example "rank 3".
  std::string Name(int rank) const;
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout.count(); }

  // Returns an error if this process is a forked child, which cannot use the communicator.
  Status CheckProcess() const;

  // ------------------------------------------------------------------------ for kernels

  // Returns the deadline of a wait that begins now.
  Clock::time_point Deadline() const;

  // Publishes this rank's operation and the data in its slot, enters a barrier and waits until all
  // ranks have arrived. Fails if the ranks run different operations.
  Status CheckedBarrier(const Descriptor& mine, Clock::time_point deadline);
  // Waits until all ranks have arrived. Called within an operation, after CheckedBarrier().
  Status Barrier(Clock::time_point deadline);

  // NextSlot() returns this rank's slot for the next barrier, to which it writes data. The
  // functions below it return the slots and descriptors of the last barrier, from which it reads.
  unsigned char* NextSlot() { return segment()->slots[rank_][(barriers_ + 1) % 2]; }
  const unsigned char* LastSlot(int rank) const { return segment()->slots[rank][barriers_ % 2]; }
  const Descriptor& LastDescriptor(int rank) const {
    return segment()->states[rank].descriptors[barriers_ % 2];
  }
  // Returns the address of position `place` in the memory of a rank's device.
  const unsigned char* Memory(int rank, uint64_t place) const {
    return devices_[static_cast<size_t>(rank)].memory() + place;
  }

  // Waits until `done` returns true. `who` returns a rank that has not arrived, or -1. Fails if
  // that rank has exited or destroyed its communicator, if the communicator has failed, or at the
  // deadline. For the error message, `what` returns a description of what is missing.
  Status WaitUntil(const std::function<bool()>& done, const std::function<int()>& who,
                   Clock::time_point deadline, const std::function<std::string()>& what);
  void Notify() { segment()->changes.Notify(); }

  Mailbox* Mailboxes(int sender, int receiver) const {
    return segment()->mailboxes[sender][receiver];
  }
  uint64_t NextMessage(int receiver) { return ++messages_[static_cast<size_t>(receiver)]; }
  std::mutex& mailbox_mutex() { return mailbox_mutex_; }
  // Returns the mutex that a thread of this rank holds while it searches for a message and claims
  // it.
  std::mutex& receive_mutex() { return receive_mutex_; }
  std::mutex& run_mutex() { return run_mutex_; }

  // ------------------------------------------------------------------------ memory

  // Implement occlCommSuspend and occlCommResume. Suspend() must be called after all operations of
  // this rank have finished.
  Status Suspend();
  Status Resume();
  occlMemoryStats_t MemoryStats();
  // Returns an error if the communicator is suspended.
  Status CheckResumed() const;
  // Returns the mutex for the memory that Suspend() releases. A batch holds it in shared mode while
  // it runs, because it uses this memory.
  std::shared_mutex& memory_mutex() { return memory_mutex_; }

  // ------------------------------------------------------------------------ failure

  // Ends the communicator for all ranks unless it has already ended. Returns the reason for the
  // end.
  Status End(occlResult_t result, const std::string& text);
  // Returns success, or the reason why the communicator has ended.
  Status Ended() const;
  // Announces that this rank has destroyed its communicator, so that the other ranks stop waiting
  // for it.
  void Leave();

  // ------------------------------------------------------------------------ for the API

  // Count this communicator's batches that are enqueued and not finished.
  void BeginBatch() { batches_.fetch_add(1, std::memory_order_relaxed); }
  void EndBatch() { batches_.fetch_sub(1, std::memory_order_release); }
  // Store finished batches until the next call destroys them, because a kernel cannot free device
  // memory.
  void AddFinished(void* batch, void (*drop)(void*));
  void DropFinished();
  bool Idle() const { return batches_.load(std::memory_order_acquire) == 0; }

  // Order a batch. The first function is called before the launch of the batch, and the second
  // after it. With `in_order`, `stream` waits for the previous batch if that batch was on a
  // different stream. Captured work is exempt, because it runs later, and the program must order
  // it.
  Status OrderAfterLast(orStream_t stream, bool in_order);
  Status RecordLast(orStream_t stream);
  // Returns whether a graph captures the batch for which OrderAfterLast() was called.
  bool captured() const { return captured_; }

  // Create, destroy and look up the operators of occlRedOpCreatePreMulSum.
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
  Status MapDevices();
  // Makes waits end when this process exits.
  static void WatchExit();
  Status Arrive(Clock::time_point deadline);
  Status CheckAgreement(const Descriptor& mine) const;
  std::string DescribeLate(int rank) const;
  int Label(int rank) const;
  // Returns the description of an operation for errors, for example "all-reduce of float32[8],
  // sum".
  std::string Describe(const Descriptor& descriptor) const;

  int rank_ = 0;
  int ranks_ = 0;
  int device_ = 0;
  int process_ = 0;
  std::vector<int> labels_;
  std::atomic<int64_t> timeout_{0};  // in milliseconds

  MappedFile file_;
  std::shared_mutex memory_mutex_;
  std::vector<MappedFile> devices_;  // empty while suspended; guarded by memory_mutex_
  std::atomic<bool> suspended_{false};

  std::mutex run_mutex_;
  uint64_t barriers_ = 0;  // number of barriers that this rank has passed; guarded by run_mutex_
  std::mutex mailbox_mutex_;
  std::mutex receive_mutex_;
  std::vector<uint64_t> messages_;  // count of messages to each rank; guarded by mailbox_mutex_

  std::atomic<uint64_t> batches_{0};
  std::mutex finished_mutex_;
  std::vector<std::pair<void*, void (*)(void*)>> finished_;
  orStream_t last_stream_ = nullptr;
  orEvent_t last_event_ = nullptr;
  bool has_last_ = false;  // whether any batch has been enqueued
  bool captured_ = false;
  std::map<int, Scale> scales_;
  int next_scale_ = occlNumOps;
};

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_COMMUNICATOR_H_
