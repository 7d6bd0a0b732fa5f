// SPDX-License-Identifier: BSD-3-Clause
//
// work.h - the handle of an operation of ProcessGroupOCCL, through which the program waits for it
// and queries it. It has the semantics of NCCL's Work.
//
// wait() makes the calling thread's current stream wait, but not the thread itself (unless the
// operation is a barrier or has a timeout). If an operation has failed, the first call that detects
// this throws the error: either wait() or the next operation. If an operation fails after wait(),
// the waiting stream reports the error.
//
// The caller owns the work, which keeps the tensors alive. If the caller drops the work early, the
// memory of the tensors is reused only after the stream has finished the operation (record_stream).
// Any thread may call the functions.
#ifndef DISTRIBUTED_WORK_H_
#define DISTRIBUTED_WORK_H_

#include <ATen/core/ivalue.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "distributed/flight_recorder.h"
#include "distributed/transport.h"

namespace openreg {

// The description of a group in profiles.
struct GroupLabel {
  std::tuple<std::string, std::string> name;  // the group's name and description
  int rank;
  int size;
  int first;   // global rank of the group's first rank
  int stride;  // difference between the global ranks of successive group members
};

class WorkOCCL final : public c10d::Work {
 public:
  struct Operation {
    c10d::OpType type;
    std::string name;  // for example "occl:all_reduce"
    uint64_t sequence;
    c10::Device device;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    int peer = -1;  // the other rank of a message; -1 means any rank
  };

  WorkOCCL(GroupLabel group, Operation operation, std::shared_ptr<Transport> transport, bool timed);

  // Record the operation's start and end on the stream on which it is enqueued.
  void begin(const c10::Stream& stream);
  void end(const c10::Stream& stream);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // Makes the host wait, because the rank is known only when the operation has finished.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Returns a future whose value is a c10d::WorkResult (as an int). The future completes when the
  // operation has finished or failed.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;

  // Returns whether the operation has finished or failed. Does not wait.
  bool has_ended() const;
  // Describes the operation, which must have ended.
  std::shared_ptr<c10d::WorkInfo> info() const;

  // Replaces the tensors that result() and getFuture() return. Must be called before end().
  void set_outputs(std::vector<at::Tensor> outputs) { operation_.outputs = std::move(outputs); }

  // Returns the operation's events and its additional output. The device may use them after this
  // object has been destroyed, so the group keeps them until the operation has finished.
  const std::shared_ptr<OperationEvents>& events() const { return events_; }

 private:
  void throw_if_failed() const;
  c10d::WorkResult outcome() const;
  void wait_on_host(std::chrono::milliseconds timeout) const;

  const GroupLabel group_;
  Operation operation_;
  const bool timed_;
  const std::chrono::steady_clock::time_point called_ = std::chrono::steady_clock::now();
  const std::shared_ptr<OperationEvents> events_;
  // Declared after events_, so it is destroyed before events_. This order matters, because the last
  // owner of the transport waits for the operation, which uses the events.
  const std::shared_ptr<Transport> transport_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::once_flag result_once_;
  c10::intrusive_ptr<c10::ivalue::Future> result_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_WORK_H_
