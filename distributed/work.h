// SPDX-License-Identifier: BSD-3-Clause
//
// work.h - what a collective of ProcessGroupOCCL returns: its end on the device, with the semantics
// of NCCL's.
//
// wait() blocks the current stream of the calling thread, not the thread (unless it is a barrier or
// has a timeout). The error of an operation that has failed is thrown by whoever finds it: wait(),
// or the next operation; one that fails after wait() is the error of the stream that waits.
//
// Owned by the caller. It keeps the tensors; the memory of one that is dropped is not used again
// before its stream has passed the operation (record_stream). Threads: any.
#ifndef DISTRIBUTED_WORK_H_
#define DISTRIBUTED_WORK_H_

#include <ATen/core/ivalue.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tuple>
#include <vector>

#include "distributed/flight_recorder.h"
#include "distributed/transport.h"

namespace openreg {

// What profiles say of a group.
struct GroupLabel {
  std::tuple<std::string, std::string> name;  // and description
  int rank;
  int size;
  int first;   // of its ranks, among all
  int stride;  // between them
};

class WorkOCCL final : public c10d::Work {
 public:
  struct Operation {
    c10d::OpType type;
    std::string name;  // "occl:all_reduce"
    uint64_t sequence;
    c10::Device device;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    int peer = -1;  // of a message; -1: any rank
  };

  WorkOCCL(GroupLabel group, Operation operation, std::shared_ptr<Transport> transport, bool timed);

  // Around the operation, on the stream that it is enqueued on.
  void begin(const c10::Stream& stream);
  void end(const c10::Stream& stream);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // Waits on the host: it is known when the operation is done.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;

  // Waits on the host, also for one that fails.
  std::shared_ptr<c10d::WorkInfo> wait_for_info() const;

  // What the device still uses after this is gone: kept until it has passed.
  const std::shared_ptr<OperationEvents>& events() const { return events_; }

 private:
  void throw_if_failed() const;
  void wait_on_host(std::chrono::milliseconds timeout) const;

  const GroupLabel group_;
  const Operation operation_;
  const bool timed_;
  const std::chrono::steady_clock::time_point called_ = std::chrono::steady_clock::now();
  const std::shared_ptr<OperationEvents> events_;
  // After the events: its last owner waits for the operation, which uses them.
  const std::shared_ptr<Transport> transport_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace openreg

#endif  // DISTRIBUTED_WORK_H_
